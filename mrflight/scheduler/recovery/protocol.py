"""The interface by which a task set asks what has to run again after a loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

M = TypeVar("M", covariant=True)
T = TypeVar("T")

Stop = Callable[[Iterable[int]], None]
"""Ends the attempts of these tasks, which will get new ones."""

Resubmit = Mapping[int, T]
"""The tasks to run again by their numbers in the stage, with the current locations."""


class Recovery(Protocol[M]):
    """Recovers what a stage has lost. See `mrflight.scheduler.recovery` for the state machine."""

    def is_stale(self) -> bool:
        """Return whether a placement has changed since the last `recover`. Does not wait."""

    def recover(
        self, error: Exception | None, unfinished: Sequence[int], stop: Stop
    ) -> Resubmit[M] | None:
        """Return the tasks to run again, besides the unfinished ones; None if nothing was lost.

        ``error`` is that of a failed attempt, or None if the stage is stale. The result may hold
        tasks that are done. ``stop`` ends attempts early that may wait for a lost server in a
        worker that is needed.
        Raises the error that makes recovery impossible.
        """


class NoRecovery:
    """For stages that use no shuffle: every failure is an ordinary one."""

    def is_stale(self) -> bool:
        return False

    def recover(
        self, error: Exception | None, unfinished: Sequence[int], stop: Stop
    ) -> Resubmit[Any] | None:
        return None


NO_RECOVERY = NoRecovery()
