"""The events of a job that never ran: as many tasks, failures and servers as a test wants."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from mrflight.events.kinds import (
    AnyEvent,
    AttemptEnded,
    AttemptRunning,
    Incident,
    JobBegan,
    JobEnded,
    JobPlanned,
    PartitionsWritten,
    PlannedStage,
    ProcessesSampled,
    ProcessMemory,
    ServersSampled,
    ServerUse,
    StageBegan,
    StageEnded,
)
from mrflight.result import Attempts, JobResult, StageSeconds

BEGAN_AT = 1_790_000_000.0
MIB = 2**20


@dataclass
class SyntheticJob:
    """Two stages whose tasks run side by side on workers, with some of everything that happens."""

    maps: int = 240
    reduces: int = 96
    workers: int = 12
    servers: int = 3
    task_s: float = 1.0
    """The usual time of a task."""
    name: str = "clicks by url"
    seed: int = 7
    counts: dict[str, int] = field(default_factory=lambda: {"map": 0, "reduce": 0, "failed": 0})

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._at = 0.6
        self._rows = self._sent = 0

    def events(self, began_at: float = BEGAN_AT) -> Iterator[AnyEvent]:
        """Yield all events in the order of their times."""
        for event in sorted(self._events(), key=lambda event: event.at):
            yield replace(event, at=round(event.at + began_at, 4))

    def _events(self) -> Iterator[AnyEvent]:
        yield JobBegan(
            at=0.0,
            job_id="3f9a1c7e42d84b05",
            name=self.name,
            version="0.1.0",
            host="worker-host",
            pid=4711,
            workers=self.workers,
            data_servers=self.servers,
            memory_bytes=6 * 1024 * MIB,
            server_memory_bytes=512 * MIB,
        )
        planned = (PlannedStage("", self.reduces, self.maps),)
        yield JobPlanned(at=0.5, table="/data/warehouse/clicks", stages=planned)
        yield from self._stage(0, "map", self.maps)
        yield self._partitions()
        yield from self._stage(1, "reduce", self.reduces)
        yield from self._samples()
        yield JobEnded(at=self._at + 0.4, result=self.result())

    def _stage(self, number: int, name: str, tasks: int) -> Iterator[AnyEvent]:
        began = self._at
        yield StageBegan(at=began, stage=number, name=name, tasks=tasks, at_once=self.workers)
        free = [began + self._random.random() * 0.2 for _ in range(self.workers)]
        for task in range(tasks):
            worker = free.index(min(free))
            for attempt in self._attempts(number, name, task, worker, free[worker]):
                free[worker] = attempt.at + 0.01 * self.task_s
                yield attempt
                if attempt.outcome == "failed":
                    yield self._failure(attempt)
        self._at = max(free)
        yield StageEnded(at=self._at, stage=number, note=f"{tasks} done")

    def _attempts(
        self, stage: int, name: str, task: int, worker: int, at: float
    ) -> Iterator[AttemptEnded]:
        draw = self._random.random()
        outcomes = ["failed", "done"] if draw < 0.012 else ["done"]
        for number, outcome in enumerate(outcomes):
            seconds = self.task_s * self._random.lognormvariate(0, 0.35)
            if name == "reduce" and task == 17 % self.reduces:
                seconds *= 6
            at += seconds
            self.counts[name] += 1
            self.counts["failed"] += outcome == "failed"
            rows = 41_000 if outcome == "done" else 0
            traffic = self._traffic(2 * MIB)
            if name == "map" and outcome == "done":
                self._rows += rows
                self._sent += sum(traffic.values())
            yield AttemptEnded(
                at=at,
                stage=stage,
                task=task,
                name=f"{name} {task}",
                attempt=number,
                outcome=outcome,
                worker=f"worker{worker}",
                seconds=seconds,
                rows=rows,
                size_bytes=8 * MIB,
                sent=traffic if name == "map" else {},
                fetched=traffic if name == "reduce" else {},
                spilled_bytes=64 * MIB if name == "reduce" and task == 17 else 0,
                speculative=draw > 0.97,
                error="the connection was lost" if outcome == "failed" else "",
            )
            at += 0.02 * self.task_s

    def _traffic(self, size: int) -> dict[str, int]:
        return {
            f"data{server}": round(size * (0.6 + 0.8 * self._random.random()))
            for server in range(self.servers)
        }

    def _failure(self, attempt: AttemptEnded) -> Incident:
        message = f"{attempt.name}: attempt 1 of 4 failed and is retried: the connection was lost"
        return Incident(
            at=attempt.at, kind="attempt_failed", message=message, action="it is tried again"
        )

    def _partitions(self) -> PartitionsWritten:
        sizes = [
            round(5.2 * MIB * self._random.lognormvariate(0, 0.25)) for _ in range(self.reduces)
        ]
        for place, times in ((17, 11.6), (40, 6.1)):
            sizes[place % self.reduces] = round(5.2 * MIB * times)
        ordered = sorted(sizes)
        return PartitionsWritten(
            at=self._at,
            stage=0,
            shuffle="3f9a1c7e42d84b05-0",
            rows=[size // 128 for size in sizes],
            size_bytes=sizes,
            largest=(sizes.index(ordered[-1]), ordered[-1]),
            median_bytes=ordered[len(ordered) // 2],
        )

    def _samples(self) -> Iterator[ProcessesSampled | ServersSampled]:
        for second in range(1, max(2, int(self._at))):
            part = min(1.0, second / self._at * 1.4)
            sizes = {"driver": 88.0, "metadata": 61.0}
            sizes |= {f"data{number}": 90 + 420 * part for number in range(self.servers)}
            sizes |= {
                f"worker{number}": 70 + 9 * (number % 5) + 80 * part
                for number in range(self.workers)
            }
            yield ProcessesSampled(
                at=float(second),
                processes=tuple(
                    ProcessMemory(name=name, pid=4712 + number, memory_bytes=round(size * MIB))
                    for number, (name, size) in enumerate(sizes.items())
                ),
            )
            yield ServersSampled(
                at=float(second),
                servers=tuple(
                    ServerUse(
                        name=f"data{number}",
                        held_bytes=round(min(410 + 20 * number, 560 * part) * MIB),
                        budget_bytes=512 * MIB,
                        spilled_bytes=round(max(0.0, 560 * part - 410) * MIB),
                    )
                    for number in range(self.servers)
                ),
            )

    def running(self, stage: int, worker: int, task: int) -> AttemptRunning:
        """Return an attempt that is seen running."""
        name = f"task {task}"
        return AttemptRunning(stage=stage, task=task, name=name, worker=f"worker{worker}")

    def result(self) -> JobResult:
        """Return what ``--json`` would print."""
        return JobResult(
            job_id="3f9a1c7e42d84b05",
            state="committed",
            rows_in=self._rows,
            rows_out=1_203_418,
            partitions=self.reduces,
            bytes_shuffled=self._sent,
            seconds=StageSeconds(total=round(self._at + 0.4, 2)),
            table="/data/warehouse/clicks",
            version=12,
            attempts=Attempts(**self.counts),
            peak_memory_bytes=2_410 * MIB,
        )
