"""What a stage asks when an attempt fails, or servers seem to be lost: what is to be done anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

M = TypeVar("M", covariant=True)
T = TypeVar("T")

Stop = Callable[[Iterable[int]], None]
"""Ends the attempts of tasks, which are made again in any case."""

Anew = Mapping[int, T]
"""Tasks by their numbers in a stage, as they are now."""


class Mender(Protocol[M]):
    """Makes good what a stage has lost to a server: see `mrflight.scheduler.map_output`."""

    def has_news(self) -> bool:
        """Whether something may have been lost since `mend` was called. Does not wait."""

    def mend(
        self, error: Exception | None, unfinished: Sequence[int], stop: Stop
    ) -> Anew[M] | None:
        """The tasks that are to be done anew, besides the unfinished; None: nothing was lost.

        It is what the servers say now that decides: an error of an attempt is a reason to ask them.
        Called with the error of an attempt, or None where there are news. Tasks that are done may
        be among them as well. ``stop`` is for attempts that may wait for a server that is gone, in
        a worker that is needed.
        Raises what makes it of no use to go on.
        """


class NothingToMend:
    """For stages that use no shuffle."""

    def has_news(self) -> bool:
        return False

    def mend(
        self, error: Exception | None, unfinished: Sequence[int], stop: Stop
    ) -> Anew[Any] | None:
        return None


NOTHING_TO_MEND = NothingToMend()
