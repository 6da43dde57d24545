"""Runs a job whose rows the caller gets, batch by batch, from the data servers."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mrflight.config.spec import JobSpec
from mrflight.events.profile import profile
from mrflight.events.recorder import Recorder
from mrflight.scheduler.job_events import job_planned
from mrflight.scheduler.job_run import JobRun, open_job
from mrflight.scheduler.metrics import JobMetrics

if TYPE_CHECKING:  # loaded while the servers start
    import pyarrow as pa


def job_rows(
    spec: JobSpec,
    folder: Path,
    events: Recorder,
    metrics: JobMetrics,
    *,
    owns_process: bool = False,
) -> Generator[pa.RecordBatch]:
    """Run a job, and yield its rows in their order; without any, an empty batch.

    ``folder`` and ``owns_process`` are those of `open_job`. The stages run when the first batch is
    asked for, and the data servers hold the result until it has been read. The job, with all its
    processes and files, ends with the generator: when it is exhausted, closed or dropped, or when
    it raises.
    Raises JobError if the job or its input is wrong, and JobFailedError or ShuffleError if it
    could not finish. Rows that were yielded before are then right, and others are missing.
    """
    opened = open_job(spec, folder, events, metrics, owns_process=owns_process)
    with opened as job, ExitStack() as stack:
        from mrflight.planner.analyze import plan_result

        workers, memory = job.runner.workers, job.settings.memory
        plan = job.deadline.run(
            partial(plan_result, spec, folder, metrics.job_id, workers, memory),
            "the inputs were analyzed",
        )
        metrics.input_versions, metrics.partitions = plan.input_versions, plan.last.partitions
        events.record(job_planned(plan, ""))
        stack.callback(_note_attempts, job)
        scheduler = job.begin_reading(stack, plan)
        with job.deadline.attribute_timeouts(), closing(scheduler.read()) as batches:
            for batch in batches:
                metrics.rows_out += batch.num_rows
                yield batch


def _note_attempts(job: JobRun) -> None:
    job.metrics.attempts = job.attempts()
    job.metrics.profile = job.events.read(profile)
