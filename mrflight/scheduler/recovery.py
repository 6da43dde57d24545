"""What a stage asks when an attempt fails, or servers seem to be lost: what is to be done anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

M = TypeVar("M", covariant=True)
T = TypeVar("T")

Stop = Callable[[Iterable[int]], None]
"""Ends the attempts of tasks, which are made again in any case."""

Resubmit = Mapping[int, T]
"""Tasks by their numbers in a stage, as they are now."""


class Recovery(Protocol[M]):
    """Makes good what a stage has lost to a server: see `mrflight.scheduler.map_output`."""

    def is_stale(self) -> bool:
        """Whether something may have been lost since `recover` was called. Does not wait."""

    def recover(
        self, error: Exception | None, unfinished: Sequence[int], stop: Stop
    ) -> Resubmit[M] | None:
        """The tasks that are to be done anew, besides the unfinished; None: nothing was lost.

        It is what the servers say now that decides: an error of an attempt is a reason to ask them.
        Called with the error of an attempt, or None where there are news. Tasks that are done may
        be among them as well. ``stop`` is for attempts that may wait for a server that is gone, in
        a worker that is needed.
        Raises what makes it of no use to go on.
        """


class NoRecovery:
    """For stages that use no shuffle."""

    def is_stale(self) -> bool:
        return False

    def recover(
        self, error: Exception | None, unfinished: Sequence[int], stop: Stop
    ) -> Resubmit[Any] | None:
        return None


NO_RECOVERY = NoRecovery()
