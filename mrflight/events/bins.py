"""Adds up attempts beyond the first 100,000 of a job, by stage, worker and outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from mrflight.events.durations import bucket_of
from mrflight.events.kinds import AttemptEnded, AttemptsBinned, OperatorWork, Outcome
from mrflight.events.operator_work import added


@dataclass
class _Sums:
    """The sums of some attempts that ended alike."""

    count: int = 0
    tasks: int = 0
    seconds: float = 0.0
    longest_seconds: float = 0.0
    cpu_seconds: float = 0.0
    rows: int = 0
    size_bytes: int = 0
    spilled_bytes: int = 0
    memory_bytes: int = 0
    speculative: int = 0
    durations: Counter[int] = field(default_factory=Counter)
    sent: Counter[str] = field(default_factory=Counter)
    fetched: Counter[str] = field(default_factory=Counter)
    operators: tuple[OperatorWork, ...] = ()

    def add(self, attempt: AttemptEnded) -> None:
        self.count += 1
        self.tasks += attempt.outcome == "done" and not attempt.again
        self.seconds += attempt.seconds
        self.longest_seconds = max(self.longest_seconds, attempt.seconds)
        self.cpu_seconds += attempt.cpu_seconds
        self.rows += attempt.rows
        self.size_bytes += attempt.size_bytes
        self.spilled_bytes += attempt.spilled_bytes
        self.memory_bytes = max(self.memory_bytes, attempt.memory_bytes)
        self.speculative += attempt.speculative
        self.durations[bucket_of(attempt.seconds)] += 1
        self.sent.update(attempt.sent)
        self.fetched.update(attempt.fetched)
        self.operators = added(self.operators, attempt.operators)


_COARSER_EVERY = 50_000
"""After so many events the interval doubles, so that a job of weeks has some 100,000 of them."""


class Bins:
    """Attempts that are not recorded one by one."""

    def __init__(self, every_s: float = 1.0) -> None:
        self._every_s = every_s
        self._coarser_at = _COARSER_EVERY
        self._taken = 0
        self._sums: dict[tuple[int, str, Outcome], _Sums] = {}
        self._since = 0.0

    def add(self, attempt: AttemptEnded) -> None:
        if not self._sums:
            self._since = attempt.at
        key = attempt.stage, attempt.worker, attempt.outcome
        sums = self._sums.get(key)
        if sums is None:
            sums = self._sums[key] = _Sums()
        sums.add(attempt)

    def is_due(self, at: float) -> bool:
        """Return whether there is something, and it is to be recorded by the time ``at``."""
        return bool(self._sums) and at - self._since >= self._every_s

    def take(self) -> Iterator[AttemptsBinned]:
        """Yield what there is, and forget it."""
        sums, self._sums = self._sums, {}
        self._taken += len(sums)
        if self._taken >= self._coarser_at:
            self._coarser_at += _COARSER_EVERY
            self._every_s *= 2
        for (stage, worker, outcome), each in sums.items():
            yield AttemptsBinned(
                since=self._since,
                stage=stage,
                worker=worker,
                outcome=outcome,
                count=each.count,
                tasks=each.tasks,
                seconds=round(each.seconds, 4),
                longest_seconds=each.longest_seconds,
                durations=sorted(each.durations.items()),
                cpu_seconds=round(each.cpu_seconds, 4),
                rows=each.rows,
                size_bytes=each.size_bytes,
                sent=dict(each.sent),
                fetched=dict(each.fetched),
                spilled_bytes=each.spilled_bytes,
                memory_bytes=each.memory_bytes,
                operators=each.operators,
                speculative=each.speculative,
            )
