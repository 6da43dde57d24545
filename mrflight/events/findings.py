"""What stands out in a job, and which setting may help. Pure functions of the job's state."""

from __future__ import annotations

from collections.abc import Iterator

from mrflight.events.job_view import JobView
from mrflight.events.stage_view import StageView, WorkerShare
from mrflight.result import Finding
from mrflight.units import format_bytes

SKEW_FACTOR = 5
"""A partition that is so many times as large as the median is named."""
_MIN_SKEWED_BYTES = 2**20
"""Smaller partitions take no time that anybody notices."""

SLOW_FACTOR = 0.5
"""A worker that is at most so fast as the median of the others is named."""
_MIN_SLOW_SECONDS = 2.0
"""The least time of a worker in a stage: the first tasks of each load code and open connections."""
_MIN_SLOW_TASKS = 3


def find(view: JobView) -> Iterator[Finding]:
    """Yield what stands out, in the order of the stages."""
    for stage in view.stages.values():
        if stage.partitions is not None:
            yield from _skewed(view, stage)
        yield from _slow_workers(stage)
        if stage.spilled_bytes:
            yield _spilled(view, stage)


def _skewed(view: JobView, stage: StageView) -> Iterator[Finding]:
    written = stage.partitions
    assert written is not None, stage
    number, size = written.largest
    if size < _MIN_SKEWED_BYTES or size < SKEW_FACTOR * written.median_bytes:
        return
    is_fixed = any(not planned.adaptive for planned in view.planned)
    times = f"{size / max(1, written.median_bytes):.0f} times the median"
    yield Finding(
        "skewed_partition",
        stage.name,
        f"partition {number} of {stage.name} has {format_bytes(size)}, {times}",
        "shuffle.partitions" if is_fixed else "",
        (
            'shuffle.partitions = "auto" divides a partition that has most rows of one key among '
            "several tasks, for reduces that can be combined and joins"
            if is_fixed
            else "most rows have one key, or few; it is divided among several tasks only for "
            "reduces that can be combined (not count_distinct, median, functions) and joins"
        ),
    )


def _slow_workers(stage: StageView) -> Iterator[Finding]:
    speeds = {
        name: speed
        for name, share in stage.workers.items()
        if (speed := _speed(stage, share)) is not None
    }
    for name, speed in speeds.items():
        others = sorted(other for worker, other in speeds.items() if worker != name)
        if not others:
            continue
        usual = others[len(others) // 2]
        if speed <= SLOW_FACTOR * usual:
            yield Finding(
                "slow_worker",
                stage.name,
                f"{name} was {speed / usual:.1f} times as fast as other workers in {stage.name}",
                "cluster.workers",
                "look for what else runs on its machine or core; fewer cluster.workers leave room "
                "for it",
            )


def _speed(stage: StageView, share: WorkerShare) -> float | None:
    """Return the bytes, or else the tasks, that a worker does in a second; None if it is vague."""
    if share.tasks < _MIN_SLOW_TASKS or share.seconds < _MIN_SLOW_SECONDS:
        return None
    return (share.size_bytes if stage.size_bytes else share.tasks) / share.seconds


def _spilled(view: JobView, stage: StageView) -> Finding:
    total = view.began.memory_bytes if view.began is not None else 0
    now = f", which is {format_bytes(total)} now" if total else ""
    shared = view.began is not None and bool(view.began.cluster) and stage.sent_bytes > 0
    return Finding(
        "spilled",
        stage.name,
        f"{stage.name} spilled {format_bytes(stage.spilled_bytes)} to disk",
        "" if shared else "cluster.memory",
        "more --memory of the data servers would keep it in memory"
        if shared
        else f"a larger cluster.memory{now}, would keep it in memory",
    )
