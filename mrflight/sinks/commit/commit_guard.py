"""The one call that makes a job's parts visible, and whether it may still do so."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mrflight.errors import DeadlineExceededError
from mrflight.system.deadlines import Deadline
from mrflight.system.signals import run_interruptibly

T = TypeVar("T")

GRACE_S = 10.0
"""For a call that begins in time. It takes milliseconds, and whoever cuts it off knows nothing."""

MAX_WAIT_S = 600.0
"""For a store that stands still, where the job has no timeout."""


class CommitGuard:
    """Of one job, in the table of this URL."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._is_under_way = False

    @property
    def outcome_unknown(self) -> bool:
        """Whether the call was left alone, and may land later: what it names has to stay."""
        return self._is_under_way

    def commit_once(self, call: Callable[[], T], deadline: Deadline) -> T:
        """What the call returns; in the main thread an interrupt ends the wait, and not the call.

        So does the deadline of the job: DeadlineExceededError, some seconds after it.
        """
        self._is_under_way = True
        has_ended = False

        def make() -> T:
            nonlocal has_ended
            try:
                return call()
            finally:
                has_ended = True

        try:
            returned = run_interruptibly(make, min(max(deadline.left_s(), GRACE_S), MAX_WAIT_S))
        except Exception as error:
            if has_ended:  # what came of it can be looked up
                self._is_under_way = False
                raise
            raise DeadlineExceededError(
                f"{self._url}: the store does not answer the commit, and the job's time has "
                "passed; whether the job is committed is not known, and may change yet: look at "
                "the table before the job is run again (with a job.run_id it commits once in any "
                "case)"
            ) from error
        self._is_under_way = False
        return returned
