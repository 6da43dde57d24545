"""The state of a job, folded from its events: what the page, the summary and reports show."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from mrflight.events.durations import Durations
from mrflight.events.kinds import (
    AnyEvent,
    AttemptEnded,
    AttemptRunning,
    AttemptsBinned,
    Committed,
    Incident,
    InputFound,
    JobBegan,
    JobEnded,
    JobPlanned,
    PartitionsWritten,
    PlannedStage,
    ProcessesSampled,
    ServerLeft,
    ServersSampled,
    ServerUse,
    StageBegan,
    StageEnded,
)
from mrflight.events.spans import Spans
from mrflight.events.stage_view import StageView, summed_up
from mrflight.result import JobResult

MAX_INCIDENTS = 1000
"""Further ones are only counted, by kind."""

Traffic = dict[str, dict[str, int]]
"""Bytes by worker and data server."""


class ProcessView(msgspec.Struct):
    """The memory of a process on the driver's machine."""

    pid: int = 0
    seen_at: float = 0.0
    memory_bytes: int = 0
    """What it held when it was seen last."""
    peak_memory_bytes: int = 0


class ServerView(msgspec.Struct):
    """A data server: what it held when it was seen last, and at most."""

    last: ServerUse
    seen_at: float
    peak_held_bytes: int = 0
    spilled_bytes: int = 0
    """What it has written to disk for lack of memory, until now."""


class WorkerView(msgspec.Struct):
    """A worker: what its attempts took, whether they counted or not."""

    attempts: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    spilled_bytes: int = 0
    memory_bytes: int = 0
    """The most that it has held."""


class JobView(msgspec.Struct):
    """The state of a job after some of its events. It has no clock: `last_at` is its time."""

    began: JobBegan | None = None
    last_at: float = 0.0
    """When the last event was recorded."""
    state: str = "running"
    """``running``, or that of the result."""
    result: JobResult | None = None
    """Known at the end; its numbers are those of ``--json``."""
    ended_at: float | None = None
    table: str = ""
    inputs: tuple[InputFound, ...] = ()
    planned: tuple[PlannedStage, ...] = ()
    stages: dict[int, StageView] = {}
    committed: Committed | None = None
    spans: Spans = msgspec.field(default_factory=Spans)
    binned: int = 0
    """The attempts that share a span with others: those after the first 100,000."""
    workers: dict[str, WorkerView] = {}
    sent: Traffic = {}
    """What each worker has sent to each data server."""
    fetched: Traffic = {}
    """What each worker has fetched from each data server."""
    processes: dict[str, ProcessView] = {}
    servers: dict[str, ServerView] = {}
    lost_servers: dict[str, str] = {}
    """Why data servers are gone, by location."""
    incidents: list[Incident] = []
    incident_counts: dict[str, int] = {}
    """All incidents, by kind."""

    @property
    def current(self) -> StageView | None:
        """The last stage that has begun and not ended, not counting those within another."""
        open_stages = (s for s in self.stages.values() if s.ended_at is None and not s.within)
        return next(reversed(list(open_stages)), None)

    @property
    def _is_shared(self) -> bool:
        """True on a standing cluster, whose servers may hold what other jobs have spilled."""
        return self.began is not None and bool(self.began.cluster)

    def add(self, event: AnyEvent) -> None:
        """Take the next event."""
        self.last_at = max(self.last_at, event.at)
        _HANDLERS[type(event)](self, event)

    def _begin(self, event: JobBegan) -> None:
        self.began = event

    def _plan(self, event: JobPlanned) -> None:
        self.table, self.inputs, self.planned = event.table, event.inputs, event.stages

    def _begin_stage(self, event: StageBegan) -> None:
        self.stages[event.stage] = StageView.begin(event)

    def _run_attempt(self, event: AttemptRunning) -> None:
        self.stages[event.stage].run(event)

    def _end_attempt(self, event: AttemptEnded) -> None:
        self.spans.add(event)
        self.stages[event.stage].add(event)
        self._add_work(event, 1)

    def _add_binned(self, event: AttemptsBinned) -> None:
        self.binned += event.count
        self.spans.add_binned(event)
        self.stages[event.stage].add_binned(event)
        self._add_work(event, event.count)

    def _add_work(self, event: AttemptEnded | AttemptsBinned, attempts: int) -> None:
        worker = self.workers.get(event.worker)
        if worker is None:
            worker = self.workers[event.worker] = WorkerView()
        worker.attempts += attempts
        worker.seconds += event.seconds
        worker.cpu_seconds += event.cpu_seconds
        worker.spilled_bytes += event.spilled_bytes
        worker.memory_bytes = max(worker.memory_bytes, event.memory_bytes)
        _add_traffic(self.sent, event.worker, event.sent)
        _add_traffic(self.fetched, event.worker, event.fetched)

    def _end_stage(self, event: StageEnded) -> None:
        self.stages[event.stage].end(event)

    def _partition(self, event: PartitionsWritten) -> None:
        self.stages[event.stage].partitions = event

    def _sample(self, event: ProcessesSampled) -> None:
        for process in event.processes:
            view = self.processes.get(process.name)
            if view is None:
                view = self.processes[process.name] = ProcessView()
            view.pid, view.seen_at = process.pid, event.at
            view.memory_bytes = process.memory_bytes
            view.peak_memory_bytes = max(view.peak_memory_bytes, process.memory_bytes)

    def _sample_servers(self, event: ServersSampled) -> None:
        for use in event.servers:
            view = self.servers.get(use.name)
            if view is None:
                view = self.servers[use.name] = ServerView(use, event.at)
                before = use.spilled_bytes if self._is_shared else 0
            else:
                before = view.last.spilled_bytes
            spilled = max(0, use.spilled_bytes - before)
            view.last, view.seen_at = use, event.at
            view.peak_held_bytes = max(view.peak_held_bytes, use.held_bytes)
            view.spilled_bytes += spilled
            if spilled and (stage := self.current) is not None:
                stage.spilled_bytes += spilled

    def _note(self, event: Incident) -> None:
        self.incident_counts[event.kind] = self.incident_counts.get(event.kind, 0) + 1
        if len(self.incidents) < MAX_INCIDENTS:
            self.incidents.append(event)

    def _leave(self, event: ServerLeft) -> None:
        self.lost_servers[event.location] = event.cause

    def _commit(self, event: Committed) -> None:
        self.committed = event

    def _end(self, event: JobEnded) -> None:
        self.result, self.state = event.result, event.result.state
        self.ended_at = event.at
        for stage in self.stages.values():
            stage.running.clear()


_HANDLERS: dict[type, Callable[[JobView, Any], None]] = {
    JobBegan: JobView._begin,
    JobPlanned: JobView._plan,
    StageBegan: JobView._begin_stage,
    AttemptRunning: JobView._run_attempt,
    AttemptEnded: JobView._end_attempt,
    AttemptsBinned: JobView._add_binned,
    StageEnded: JobView._end_stage,
    PartitionsWritten: JobView._partition,
    ProcessesSampled: JobView._sample,
    ServersSampled: JobView._sample_servers,
    Incident: JobView._note,
    ServerLeft: JobView._leave,
    Committed: JobView._commit,
    JobEnded: JobView._end,
}


def fold(events: Iterable[AnyEvent]) -> JobView:
    """Return the state of a job after these events, the first of which is its first."""
    view = JobView()
    for event in events:
        view.add(event)
    return view


def encode_view(view: JobView) -> bytes:
    """Return a view as JSON: spans in columns, and the times of a stage summed up."""
    return _ENCODER.encode(view)


def _add_traffic(traffic: Traffic, worker: str, by_server: dict[str, int]) -> None:
    if not by_server:
        return
    row = traffic.setdefault(worker, {})
    for server, size in by_server.items():
        row[server] = row.get(server, 0) + size


def _encode_hook(value: Any) -> Any:
    if isinstance(value, Spans):
        return value.columns()
    if isinstance(value, Durations):
        return summed_up(value)
    raise NotImplementedError(type(value).__name__)


_ENCODER = msgspec.json.Encoder(enc_hook=_encode_hook)
