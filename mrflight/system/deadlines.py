"""The deadline of a job, and the timeouts of calls to servers, which it shortens."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from mrflight.errors import DeadlineExceededError, MrflightError
from mrflight.system.signals import run_interruptibly

T = TypeVar("T")

_MIN_TIMEOUT_S = 0.01
"""The timeout of a call that is made although the deadline has passed. gRPC reads 0 as no limit."""


class Timeouts(msgspec.Struct, frozen=True):
    """How long the calls of one job, or of one program, wait for servers. All are in seconds."""

    call_s: float = 30.0
    """For a call that a server answers from memory."""
    stream_s: float = 3600.0
    """For one DoPut or DoGet, from its first byte to its last."""
    idle_timeout_s: float = 60.0
    """For the first or the next message of a stream that is read."""
    reconnect_s: float = 30.0
    """For an unreachable metadata server, and for data servers if there are none: replacements may
    be starting."""


DEFAULT_TIMEOUTS = Timeouts()

NO_RETRY = Timeouts(call_s=2.0, reconnect_s=0.0)
"""For callers that have waited already, or that cannot wait."""


class Deadline(msgspec.Struct, frozen=True):
    """A time on the monotonic clock of this process, or never."""

    at: float = math.inf

    def left_s(self) -> float:
        """Return the seconds left, which are never below 0."""
        return max(0.0, self.at - time.monotonic())

    def expired(self) -> bool:
        """Return whether the deadline has passed."""
        return time.monotonic() >= self.at

    def check(self, what: str) -> None:
        """Raise DeadlineExceededError if the deadline has passed; ``what`` is still unfinished."""
        if self.expired():
            raise DeadlineExceededError(f"the job's timeout passed with {what}; raise job.timeout")

    def clamp(self, timeouts: Timeouts) -> Timeouts:
        """Return the timeouts, each limited to the time that is left."""
        max_s = max(_MIN_TIMEOUT_S, self.left_s())
        return Timeouts(
            min(timeouts.call_s, max_s),
            min(timeouts.stream_s, max_s),
            min(timeouts.idle_timeout_s, max_s),
            min(timeouts.reconnect_s, self.left_s()),
        )

    def run(self, call: Callable[[], T], while_: str) -> T:
        """Return what ``call`` returns; it runs in another thread.

        Raises DeadlineExceededError, which says ``while_`` what the deadline passed. The call then
        goes on in the background.
        """
        try:
            return run_interruptibly(call, self.left_s())
        except TimeoutError as error:
            if not self.expired():
                raise  # the call itself has raised it
            raise DeadlineExceededError(
                f"the job's timeout passed while {while_}; raise job.timeout"
            ) from error

    @contextmanager
    def attribute_timeouts(self) -> Iterator[None]:
        """Raise DeadlineExceededError for an error of a server that comes after the deadline.

        Calls have a timeout that ends at the deadline (see `clamp`), so that is the cause.
        """
        try:
            yield
        except MrflightError as error:
            if not self.expired() or error.location is None:
                raise
            raise DeadlineExceededError(
                f"the job's timeout passed while waiting for a server: {error}; raise job.timeout"
            ) from error


NO_DEADLINE = Deadline()
