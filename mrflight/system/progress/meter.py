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

    def __init__(self, stage: str, tasks: int, size_bytes: int, now: float) -> None:
        self.stage = stage
        self.tasks = tasks
        self.done = 0
        """The tasks that have ended."""
        self._size_bytes = size_bytes
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

    def left(self, now: float) -> str:
        """Return how long the stage will take from now on, or nothing if that is not known."""
        elapsed_s, fraction = self._at - self._began, self.fraction
        if elapsed_s < _MIN_ELAPSED_S or not 0 < fraction < 1:
            return ""
        left_s = elapsed_s * (1 - fraction) / fraction - (now - self._at)
        return f"about {format_duration(left_s)} left" if left_s >= 1 else ""

    def status(self, now: float) -> str:
        """Return the rates and the estimate."""
        return ", ".join(filter(None, [self.rates(), self.left(now)]))
