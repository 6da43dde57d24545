"""What a page shows of a job, made from its `JobView`. Pure functions; times are the view's own."""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import msgspec

from mrflight.events.findings import find
from mrflight.events.job_view import JobView, Traffic
from mrflight.events.kinds import Incident, PartitionsWritten
from mrflight.events.spans import Spans
from mrflight.events.stage_view import StageView
from mrflight.page.contract import (
    AttemptColumns,
    FindingRow,
    IncidentRow,
    Matrix,
    PageParts,
    PageState,
    ProcessRow,
    RunningAttempt,
    ShuffleSizes,
    StageRow,
)
from mrflight.page.medians import Medians
from mrflight.result import JobResult

MAX_BARS = 2_000
"""More partitions than that are not seen one by one."""

_GONE_AFTER_S = 5.0
"""A process that is missing in the samples for so long is gone; one sample may lack it."""


def began_at(view: JobView) -> float:
    """Return when the job began, in seconds since 1970."""
    return view.began.at if view.began is not None else view.last_at


def page_state(view: JobView, now: float, medians: Medians) -> PageState:
    """Return the state at the time ``now``."""
    began = began_at(view)
    stages = [
        _stage_row(view.stages[number], began, now, medians) for number in sorted(view.stages)
    ]
    result, workers = view.result, _workers(view)
    return PageState(
        kind="job",
        title=view.began.name if view.began else "",
        subtitle=_subtitle(view),
        state=view.state,
        error=(result.error or "") if result else "",
        elapsed=round((view.ended_at or now) - began, 3),
        ended=None if view.ended_at is None else round(view.ended_at - began, 3),
        figures=_figures_of_result(result) if result else _figures(view),
        stages=stages,
        workers=workers,
        running=_running(view, began, workers),
        attempts_ended=sum(stage.attempts for stage in view.stages.values()),
        incidents_all=sum(view.incident_counts.values()),
    )


def page_parts(view: JobView, incidents: list[IncidentRow]) -> PageParts:
    """Return the rest of what a page shows; ``incidents`` are completed, and part of it."""
    began = began_at(view)
    incidents += [_incident_row(each, began) for each in view.incidents[len(incidents) :]]
    return PageParts(
        [FindingRow(each.message, each.advice) for each in find(view)],
        _process_rows(view),
        incidents[:],
        [
            _shuffle(stage.name, stage.partitions)
            for _, stage in sorted(view.stages.items())
            if stage.partitions is not None
        ],
        _matrix(view.sent, view.fetched),
    )


def attempt_columns(spans: Spans, since: int, most: int, began: float) -> AttemptColumns:
    """Return at most ``most`` attempts from the position ``since`` on."""
    part = slice(since, since + most)
    columns = (
        spans.worker,
        spans.stage,
        spans.task,
        spans.attempt,
        spans.outcome,
        spans.speculative,
        spans.began,
        spans.seconds,
        spans.count,
        spans.busy,
    )
    count = len(spans.worker[part])
    return AttemptColumns(since, count, began, *(_little(column[part]) for column in columns))


def _little(column: array[Any]) -> bytes:
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()


def _subtitle(view: JobView) -> str:
    if view.began is None:
        return ""
    began = view.began
    return f"{began.job_id} on {began.host}, {began.workers} workers" + (
        f", to {view.table}" if view.table else ""
    )


def _figures_of_result(result: JobResult) -> dict[str, Any]:
    return {
        "rows_in": result.rows_in,
        "rows_out": result.rows_out,
        "bytes_shuffled": result.bytes_shuffled,
        "partitions": result.partitions,
        "attempts": {
            "map": result.attempts.map,
            "reduce": result.attempts.reduce,
            "failed": result.attempts.failed,
        },
        "peak_memory_bytes": result.peak_memory_bytes,
        "bad_rows": sum(result.bad_rows.values()),
        "seconds": msgspec.to_builtins(result.seconds),
    }


def _figures(view: JobView) -> dict[str, Any]:
    """Return the figures of a job that runs, as far as its events say them."""
    stages = list(view.stages.values())
    return {
        "rows_in": sum(s.rows for s in stages if _kind(s) == "map" and not s.within),
        "rows_out": 0,
        "bytes_shuffled": sum(
            sum(stage.partitions.size_bytes) if stage.partitions else stage.sent_bytes
            for stage in stages
        ),
        "partitions": view.planned[-1].partitions if view.planned else 0,
        "attempts": {
            "map": _attempts(stages, "map"),
            "reduce": _attempts(stages, "reduce", "aggregate"),
            "failed": sum(stage.outcomes.get("failed", 0) for stage in stages),
        },
        "memory_bytes": sum(each.memory_bytes for each in view.processes.values()),
        "bad_rows": 0,
    }


def _attempts(stages: Iterable[StageView], *kinds: str) -> int:
    return sum(stage.attempts + len(stage.running) for stage in stages if _kind(stage) in kinds)


def _kind(stage: StageView) -> str:
    return stage.name.partition(" ")[0]


def _stage_row(stage: StageView, began: float, now: float, medians: Medians) -> StageRow:
    left = stage.left_s(now)
    ended = stage.ended_at
    return StageRow(
        name=stage.name,
        tasks=stage.tasks,
        done=stage.done,
        running=len(stage.running),
        failed=stage.outcomes.get("failed", 0),
        retried=stage.retried,
        rows=stage.rows,
        bytes=stage.done_bytes or stage.fetched_bytes,
        median=round(medians.of(stage), 4),
        longest=round(stage.durations.longest, 4),
        spilled=stage.spilled_bytes,
        began=round(stage.began_at - began, 3),
        ended=None if ended is None else round(ended - began, 3),
        left=None if left is None else round(max(0.0, left), 1),
        within=stage.within,
    )


def _running(view: JobView, began: float, workers: list[str]) -> list[RunningAttempt]:
    rows = {name: row for row, name in enumerate(workers)}
    return [
        RunningAttempt(
            rows[attempt.worker],
            number,
            round(attempt.at - began, 3),
            attempt.speculative,
        )
        for number, stage in view.stages.items()
        for attempt in stage.running.values()
        if attempt.worker
    ]


def _workers(view: JobView) -> list[str]:
    """Return the workers of the spans, in their order, and those that run their first attempt."""
    running = (run.worker for stage in view.stages.values() for run in stage.running.values())
    return list(dict.fromkeys([*view.spans.workers, *filter(None, running)]))


def _process_rows(view: JobView) -> list[ProcessRow]:
    """Return the processes of the driver's machine, and the data servers wherever they are."""
    memory_at = max((each.seen_at for each in view.processes.values()), default=0.0)
    held_at = max((each.seen_at for each in view.servers.values()), default=0.0)
    rows = []
    for name in {**view.processes, **view.servers}:
        process, server = view.processes.get(name), view.servers.get(name)
        worker = view.workers.get(name)
        rows.append(
            ProcessRow(
                name,
                server.last.held_bytes if server else 0,
                server.last.budget_bytes if server else 0,
                process.memory_bytes if process else 0,
                process.peak_memory_bytes if process else 0,
                (server.spilled_bytes if server else 0) + (worker.spilled_bytes if worker else 0),
                (process is None or memory_at - process.seen_at > _GONE_AFTER_S)
                and (server is None or held_at - server.seen_at > _GONE_AFTER_S),
            )
        )
    return sorted(rows, key=lambda row: (not row.budget, natural(row.name)))


def _incident_row(incident: Incident, began: float) -> IncidentRow:
    what = incident.message.removesuffix(incident.action).rstrip("; ")
    if what == incident.message and incident.cause:
        what = f"{incident.subject}: {incident.cause}"
    return IncidentRow(round(incident.at - began, 1), what, incident.action)


def _shuffle(stage: str, written: PartitionsWritten) -> ShuffleSizes:
    """Return the sizes of a shuffle, in no more bars than can be seen."""
    more = -(-len(written.size_bytes) // MAX_BARS)
    return ShuffleSizes(
        written.shuffle,
        f"{stage} ({written.shuffle})",
        len(written.size_bytes) * written.width,
        written.width * more,
        _summed(written.size_bytes, more),
        _summed(written.rows, more),
        written.median_bytes,
        written.largest,
    )


def _summed(numbers: list[int], width: int) -> list[int]:
    if width == 1:
        return numbers
    return [sum(numbers[at : at + width]) for at in range(0, len(numbers), width)]


def _matrix(sent: Traffic, fetched: Traffic) -> Matrix:
    workers = sorted({*sent, *fetched}, key=natural)
    servers = sorted(
        {name for row in (*sent.values(), *fetched.values()) for name in row}, key=natural
    )
    return Matrix(workers, servers, *(_table(each, workers, servers) for each in (sent, fetched)))


def _table(traffic: Traffic, workers: list[str], servers: list[str]) -> list[list[int]]:
    none: dict[str, int] = {}
    return [[traffic.get(worker, none).get(server, 0) for server in servers] for worker in workers]


@lru_cache(maxsize=4096)
def natural(name: str) -> list[tuple[int, str]]:
    """Return the key by which ``worker10`` comes after ``worker9``."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
