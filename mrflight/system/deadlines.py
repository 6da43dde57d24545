"""When a job has to be done by, and how that shortens the waits of its driver."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from mrflight.errors import DeadlineExceededError, MrflightError
from mrflight.system.signals import run_interruptibly
from mrflight.system.timeouts import Timeouts

T = TypeVar("T")

_SHORTEST_S = 0.01
"""Of a call that is made nevertheless: gRPC takes none for no limit."""


class Deadline(msgspec.Struct, frozen=True):
    """A moment of the monotonic clock, or never. Holds in the process that made it."""

    at: float = math.inf

    def left_s(self) -> float:
        """Not below 0."""
        return max(0.0, self.at - time.monotonic())

    def is_over(self) -> bool:
        return time.monotonic() >= self.at

    def check(self, what: str) -> None:
        """Raise DeadlineExceededError once it is over, with ``what`` is not done."""
        if self.is_over():
            raise DeadlineExceededError(f"the job's timeout passed with {what}; raise job.timeout")

    def within(self, timeouts: Timeouts) -> Timeouts:
        """Those of calls that begin now and are not to last beyond it."""
        most_s = max(_SHORTEST_S, self.left_s())
        return Timeouts(
            min(timeouts.call_s, most_s),
            min(timeouts.stream_s, most_s),
            min(timeouts.silence_s, most_s),
            min(timeouts.reconnect_s, self.left_s()),
        )

    def awaited(self, call: Callable[[], T], while_: str) -> T:
        """What ``call`` gives, made in another thread, where it goes on by itself if it is late.

        DeadlineExceededError, with what was done ``while_`` it passed, once it is over.
        """
        try:
            return run_interruptibly(call, self.left_s())
        except TimeoutError as error:
            if not self.is_over():
                raise  # the call's own
            raise DeadlineExceededError(
                f"the job's timeout passed while {while_}; raise job.timeout"
            ) from error

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Name it as the cause where a server does not answer inside, once it is over.

        Raises DeadlineExceededError.
        """
        try:
            yield
        except MrflightError as error:
            if not self.is_over() or error.location is None:
                raise
            raise DeadlineExceededError(
                f"the job's timeout passed while a server was awaited: {error}; raise job.timeout"
            ) from error


NO_DEADLINE = Deadline()
