"""The one call that makes a job's parts visible, and the pause before it is tried again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from mrflight.errors import DeadlineExceededError
from mrflight.system.deadlines import Deadline
from mrflight.system.signals import run_interruptibly

T = TypeVar("T")

GRACE_S = 10.0
"""The time for a call that begins before the deadline. It usually takes milliseconds, and cutting
it off leaves its outcome unknown."""

MAX_WAIT_S = 600.0
"""The time for a store to answer if the job has no timeout."""

MAX_TRIES = 30
"""The number of tries of a commit while other writers are faster."""
_MAX_PAUSE_S = 0.2


def random_backoff() -> None:
    """Sleep for a random time, so that writers that conflicted do not conflict again.

    Call this before the table is looked at. A writer that sleeps between its look and the commit
    that is based on it is late each time, because others commit meanwhile.
    """
    time.sleep(random.uniform(0, _MAX_PAUSE_S))


class CommitGuard:
    """Runs the call that commits a job to the table of this URL, and knows if it may still run."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._is_running = False

    @property
    def outcome_unknown(self) -> bool:
        """Whether the call was abandoned and may still take effect, so that its files must stay."""
        return self._is_running

    def commit_once(self, call: Callable[[], T], deadline: Deadline) -> T:
        """Return what the call returns.

        In the main thread an interrupt ends the wait, but not the call. So does the job's deadline,
        some seconds after it has passed: that raises DeadlineExceededError.
        """
        self._is_running = True
        has_ended = False

        def run() -> T:
            nonlocal has_ended
            try:
                return call()
            finally:
                has_ended = True

        try:
            returned = run_interruptibly(run, min(max(deadline.left_s(), GRACE_S), MAX_WAIT_S))
        except Exception as error:
            if has_ended:  # the caller can find out what came of it
                self._is_running = False
                raise
            raise DeadlineExceededError(
                f"{self._url}: the store does not answer the commit, and the job's time has "
                "passed; whether the job is committed is not known, and may change yet: look at "
                "the table before the job is run again (with a job.run_id it commits once in any "
                "case)"
            ) from error
        self._is_running = False
        return returned
