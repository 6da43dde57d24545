"""Measures a stage while it runs: how fast it is, and when it will end. No clock of its own."""

from __future__ import annotations

from mrflight.system.progress.report import Work
from mrflight.units import format_bytes, format_duration, format_rate

_MIN_ELAPSED_S = 1.0
"""The rates of a shorter time are mostly those of the start of workers and connections."""


class StageMeter:
    """The work of a stage until now.

    It is measured when tasks end, so a rate is that of the time until the last of these ends, and
    the estimate counts down from there.
    """

    def __init__(
        self, stage: str, tasks: int, size_bytes: int = 0, at_once: int = 1, *, now: float
    ) -> None:
        self.stage = stage
        self.tasks = tasks
        self.done = 0
        """The tasks that have ended."""
        self._size_bytes = size_bytes
        self._at_once = at_once
        self._rows = self._read_bytes = 0
        self._began = self._at = now

    def advance(self, work: Work, tasks: int, now: float) -> None:
        """Add the work of so many tasks, which have ended."""
        self.done += tasks
        self._rows += work.rows
        self._read_bytes += work.size_bytes
        self._at = now

    @property
    def is_done(self) -> bool:
        return self.done >= self.tasks

    def count(self, between: str) -> str:
        """Return how many tasks have ended, and how many there are."""
        return f"{self.done:,}{between}{self.tasks:,}"

    @property
    def fraction(self) -> float:
        """The part of the work that is done: of its bytes if they are known, or of its tasks."""
        if self._size_bytes and not self.is_done:
            return min(1.0, self._read_bytes / self._size_bytes)
        return self.done / self.tasks if self.tasks else 0.0

    def rates(self) -> str:
        """Return the rows and bytes per second, or nothing before they can be known."""
        elapsed_s = self._at - self._began
        if elapsed_s < _MIN_ELAPSED_S:
            return ""
        rates = [format_rate(self._rows / elapsed_s, "rows")] if self._rows else []
        rates += [f"{format_bytes(self._read_bytes / elapsed_s)}/s"] if self._read_bytes else []
        return ", ".join(rates)

    def left_s(self, now: float) -> float | None:
        """Return how long the stage will take from now on; None if that is not known.

        Workers begin with their first tasks together, so when one is done the others almost are,
        and so on with their next tasks. So the work is done, and left, in whole rounds.
        """
        elapsed_s = self._at - self._began
        at_once = self._at_once
        rounds, all_rounds = -(-self.done // at_once), -(-self.tasks // at_once)
        done = self.fraction * self.tasks + rounds * at_once - self.done
        if elapsed_s < _MIN_ELAPSED_S or not done or rounds == all_rounds:
            return None
        left = max(0.0, all_rounds * at_once - done)
        return elapsed_s * left / done - (now - self._at)

    def left(self, now: float) -> str:
        """Return the estimate in words, or nothing if there is none, or no time left."""
        left_s = self.left_s(now)
        return "" if left_s is None or left_s < 1 else f"about {format_duration(left_s)} left"

    def status(self, now: float) -> str:
        """Return the rates and the estimate."""
        return ", ".join(filter(None, [self.rates(), self.left(now)]))
