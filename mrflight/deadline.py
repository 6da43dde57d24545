"""When a job has to be done by, and how that shortens the waits of its driver."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from mrflight.errors import DeadlineExceededError, MrflightError
from mrflight.timeouts import Timeouts

_SHORTEST_S = 0.01
"""Of a call that is made nevertheless: gRPC takes none for no limit."""


@dataclass(frozen=True)
class Deadline:
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
