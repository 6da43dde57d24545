"""What is known of one set of tasks, folded from its events."""

from __future__ import annotations

from typing import Any

import msgspec

from mrflight.events.durations import Durations
from mrflight.events.kinds import (
    AttemptEnded,
    AttemptRunning,
    AttemptsBinned,
    OperatorWork,
    PartitionsWritten,
    QueryStage,
    StageBegan,
    StageEnded,
)
from mrflight.events.operator_work import added
from mrflight.system.progress.meter import StageMeter
from mrflight.system.progress.report import Work

_SLOWEST = 5


class WorkerShare(msgspec.Struct):
    """What one worker has done of a stage."""

    attempts: int = 0
    tasks: int = 0
    seconds: float = 0.0
    """The wall times of its attempts that count."""
    rows: int = 0
    size_bytes: int = 0


class SlowTask(msgspec.Struct, frozen=True):
    """One of the tasks of a stage that took longest."""

    seconds: float
    task: int
    name: str
    worker: str


class StageView(msgspec.Struct):
    """A set of tasks: how far it is, and what it took. See `StageBegan` for its fields."""

    stage: int
    name: str
    tasks: int
    size_bytes: int
    at_once: int
    within: bool
    began_at: float
    ended_at: float | None = None
    note: str = ""
    failed: bool = False
    done: int = 0
    """The tasks that have been done; those whose output was lost again count once."""
    outcomes: dict[str, int] = {}
    """The attempts that have ended, by outcome."""
    speculative: int = 0
    retried: int = 0
    """The attempts that were not the first of their task, without speculative ones."""
    binned: int = 0
    """The attempts of it that are in no event of their own."""
    last_done_at: float = 0.0
    rows: int = 0
    """The rows of attempts that count."""
    done_bytes: int = 0
    """The bytes of the work of attempts that count."""
    sent_bytes: int = 0
    """What all attempts sent to data servers."""
    fetched_bytes: int = 0
    """What all attempts fetched from data servers."""
    spilled_bytes: int = 0
    """What workers, and meanwhile data servers, wrote to disk for lack of memory."""
    cpu_seconds: float = 0.0
    memory_bytes: int = 0
    """The most that a worker had held after an attempt."""
    runs: QueryStage | None = None
    operators: tuple[OperatorWork, ...] = ()
    """What the operators of ``runs`` did in attempts that count."""
    durations: Durations = msgspec.field(default_factory=Durations)
    """The wall times of attempts that count."""
    slowest: list[SlowTask] = []
    """The tasks that took longest, the longest one first."""
    workers: dict[str, WorkerShare] = {}
    running: dict[int, AttemptRunning] = {}
    """The last attempt that was seen running, of each task that is not done."""
    partitions: PartitionsWritten | None = None

    @classmethod
    def begin(cls, event: StageBegan) -> StageView:
        return cls(
            event.stage,
            event.name,
            event.tasks,
            event.size_bytes,
            event.at_once,
            event.within,
            event.at,
            last_done_at=event.at,
            runs=event.runs,
        )

    @property
    def attempts(self) -> int:
        """The attempts that have ended."""
        return sum(self.outcomes.values())

    @property
    def seconds(self) -> float:
        """The wall time until the end, or until the last attempt that ended."""
        return (self.ended_at or self.last_done_at) - self.began_at

    @property
    def fraction(self) -> float:
        """The part of the work that is done."""
        return self._meter().fraction

    def left_s(self, now: float) -> float | None:
        """Return how long it will take from ``now`` on; None if that is not known."""
        return None if self.ended_at is not None else self._meter().left_s(now)

    def _meter(self) -> StageMeter:
        meter = StageMeter(self.name, self.tasks, self.size_bytes, self.at_once, now=self.began_at)
        meter.advance(Work(self.rows, self.done_bytes), self.done, self.last_done_at)
        return meter

    def run(self, event: AttemptRunning) -> None:
        self.running[event.task] = event

    def end(self, event: StageEnded) -> None:
        self.ended_at = event.at
        self.note, self.failed = event.note, event.failed
        self.running.clear()

    def add(self, event: AttemptEnded) -> None:
        """Add an attempt that has ended."""
        seen = self.running.get(event.task)
        if seen is not None and (event.outcome == "done" or seen.attempt == event.attempt):
            del self.running[event.task]
        self.retried += event.attempt > 0 and not event.speculative
        self._add_sums(event, 1, event.speculative)
        if event.outcome != "done":
            return
        self.durations.add(event.seconds)
        self._note_slow(SlowTask(event.seconds, event.task, event.name, event.worker))
        self._count(event, tasks=not event.again)

    def add_binned(self, event: AttemptsBinned) -> None:
        """Add several attempts that have ended."""
        self.binned += event.count
        self._add_sums(event, event.count, event.speculative)
        if event.outcome != "done":
            return
        self.durations.add_buckets(event.durations, event.seconds, event.longest_seconds)
        self._count(event, tasks=event.tasks)

    def _add_sums(self, event: AttemptEnded | AttemptsBinned, count: int, speculative: int) -> None:
        self.outcomes[event.outcome] = self.outcomes.get(event.outcome, 0) + count
        self._share(event.worker).attempts += count
        self.speculative += speculative
        self.sent_bytes += sum(event.sent.values())
        self.fetched_bytes += sum(event.fetched.values())
        self.spilled_bytes += event.spilled_bytes
        self.cpu_seconds += event.cpu_seconds
        self.memory_bytes = max(self.memory_bytes, event.memory_bytes)

    def _count(self, event: AttemptEnded | AttemptsBinned, tasks: int) -> None:
        """Count tasks as done."""
        self.done += tasks
        self.last_done_at = event.at
        if tasks:  # what is done again counts once
            self.rows += event.rows
            self.done_bytes += event.size_bytes
            self.operators = added(self.operators, event.operators)
        share = self._share(event.worker)
        share.tasks += tasks
        share.seconds += event.seconds
        share.rows += event.rows
        share.size_bytes += event.size_bytes

    def _share(self, worker: str) -> WorkerShare:
        share = self.workers.get(worker)
        if share is None:
            share = self.workers[worker] = WorkerShare()
        return share

    def _note_slow(self, task: SlowTask) -> None:
        if len(self.slowest) == _SLOWEST and task.seconds <= self.slowest[-1].seconds:
            return
        self.slowest = sorted([*self.slowest, task], key=lambda each: -each.seconds)[:_SLOWEST]


def summed_up(durations: Durations) -> dict[str, Any]:
    """Return what JSON has of the times of attempts."""
    return {
        "count": len(durations),
        "total": round(durations.total, 4),
        "median": round(durations.median(), 4),
        "longest": round(durations.longest, 4),
    }
