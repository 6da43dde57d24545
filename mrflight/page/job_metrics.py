"""The metrics of a job that runs, from its `JobView`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from mrflight.events.job_view import JobView
from mrflight.page.measured import Measured


def job_metrics(view: JobView) -> Iterator[Measured]:
    """Yield the metrics of a driver. Stages have their kind as a label, and not their name."""
    stages = list(view.stages.values())
    outcomes: Counter[str] = Counter()
    for stage in stages:
        outcomes.update(stage.outcomes)
    yield Measured("job_running", "1 until the job has ended.", float(view.ended_at is None))
    yield Measured(
        "job_tasks", "Tasks of the stages that have begun.", sum(stage.tasks for stage in stages)
    )
    yield Measured(
        "job_tasks_done",
        "Tasks that are done.",
        sum(stage.done for stage in stages),
        kind="counter",
    )
    yield Measured(
        "job_tasks_running",
        "Attempts that were seen running.",
        sum(len(stage.running) for stage in stages),
    )
    yield Measured(
        "job_attempts",
        "Attempts that have ended, by how.",
        {outcome: outcomes[outcome] for outcome in ("done", "failed", "lost", "stopped")},
        "outcome",
        "counter",
    )
    yield Measured(
        "job_sent_bytes",
        "Bytes of blocks that workers have sent to data servers.",
        sum(stage.sent_bytes for stage in stages),
        kind="counter",
    )
    yield Measured(
        "job_fetched_bytes",
        "Bytes of blocks that workers have fetched from data servers.",
        sum(stage.fetched_bytes for stage in stages),
        kind="counter",
    )
    yield Measured(
        "job_spilled_bytes",
        "Bytes that workers and data servers have written to disk for lack of memory.",
        sum(stage.spilled_bytes for stage in stages),
        kind="counter",
    )
    yield Measured(
        "job_memory_bytes",
        "Memory of the job's processes on the driver's machine.",
        sum(process.memory_bytes for process in view.processes.values()),
    )
    yield Measured(
        "job_incidents",
        "Things that went wrong, by kind.",
        dict(view.incident_counts),
        "kind",
        "counter",
    )
