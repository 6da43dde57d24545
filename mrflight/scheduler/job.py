"""Runs a job to its commit: analyze, run the stages, commit. Sees tasks, never data.

`run_job` opens the `JobRun`, whose `StageScheduler` knows nothing of jobs, runtimes and commits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from mrflight.config.spec import JobSpec
from mrflight.events.kinds import Committed
from mrflight.events.profile import profile
from mrflight.events.recorder import Recorder
from mrflight.result import JobResult
from mrflight.scheduler.job_events import job_planned
from mrflight.scheduler.job_run import JobRun, open_job
from mrflight.scheduler.metrics import JobMetrics
from mrflight.scheduler.task_set import TaskSetSpec
from mrflight.system.memory_sampler import MemorySampler
from mrflight.system.signals import Interrupts
from mrflight.units import format_count

if TYPE_CHECKING:  # these need Arrow, which is loaded while the servers start
    from mrflight.planner.job_plan import JobPlan
    from mrflight.sinks.commit.base import Sink, SinkTask, SinkTasks
    from mrflight.sinks.commit.commit_lease import CommitLock
    from mrflight.tasks.part_files import ReduceResult


def run_job(
    spec: JobSpec,
    folder: Path,
    events: Recorder,
    metrics: JobMetrics,
    *,
    interrupts: Interrupts | None = None,
    owns_process: bool = False,
) -> JobResult:
    """Run a job to its commit.

    The arguments are those of `open_job`.
    If anything is raised, the output is unchanged, and all processes and files of the job are gone.
    Raises JobError if the job or its input is wrong, and JobFailedError or ShuffleError if it
    could not finish.
    """
    with (
        open_job(
            spec, folder, events, metrics, interrupts=interrupts, owns_process=owns_process
        ) as job,
        MemorySampler(job.processes, job.record_memory) as meter,
    ):
        try:
            _CommittedJob(job).run()
        finally:
            metrics.attempts = job.attempts()
            metrics.peak_memory_bytes = meter.peak_bytes
            metrics.profile = events.read(profile)
        return metrics.result("committed")


class _CommittedJob:
    """One run of a job whose result is committed to its output."""

    def __init__(self, job: JobRun) -> None:
        self._job = job
        self._spec = job.spec
        self._metrics = job.metrics
        self._events = job.events
        self._progress = job.events.driver
        self._interrupts = job.interrupts
        self._deadline = job.deadline
        self._runner = job.runner
        self._memory = job.settings.memory

    def run(self) -> None:
        plan, sink = self._analyze()
        if sink.was_committed():
            self._progress.begin("commit", 0)
            self._progress.end(f"run {self._spec.job.run_id!r} is already committed")
            self._metrics.version = sink.committed_version()
            return
        self._warn_of_other_writers(sink)
        with ExitStack() as stack:
            # Aborting removes what is not committed, and nothing else.
            stack.callback(self._interrupts.clean_up, sink.abort)
            scheduler, shuffles = self._job.begin_writing(stack, plan, needs_lock=sink.needs_lock)
            with self._deadline.attribute_timeouts():
                part_writer = sink.part_writer.with_memory_limit(self._memory.encoder)
                reduced = scheduler.write(part_writer)
            if self._spec.output.mode == "merge":
                shuffles.drop()  # all rows are in part files, and the rewrite needs memory as well
            self._metrics.timer.begin("commit")
            self._deadline.check("nothing committed")
            shuffles.monitor.close()
            self._metrics.version = self._commit(sink, reduced)
            self._metrics.rows_out = sum(result.rows_out for result in reduced)

    def _analyze(self) -> tuple[JobPlan, Sink]:
        """Look at the inputs and the output, and plan the job."""
        from mrflight.planner.analyze import analyze
        from mrflight.sinks import output_url

        job = self._job
        self._metrics.table = output_url(self._spec.output, job.folder, self._spec.storage)
        workers = self._runner.workers
        plan, sink = self._deadline.run(
            partial(analyze, self._spec, job.folder, self._metrics.job_id, workers, self._memory),
            "the inputs and the output were analyzed, with nothing committed",
        )
        self._metrics.partitions = plan.last.partitions
        self._metrics.input_versions = plan.input_versions
        self._events.record(job_planned(plan, self._metrics.table))
        return plan, sink

    def _warn_of_other_writers(self, sink: Sink) -> None:
        """Warn of a store without put-if-absent if other jobs cannot share the commit lease."""
        if sink.needs_lock and self._job.cluster is not None:
            self._events.notice(
                "notice",
                f"{self._metrics.table}: let no other job commit to this table at the same time, "
                "or set cluster.metadata of all of them to the same metadata server (through a "
                "tunnel between two hosts): HopsFS does not tell which of two writers was first",
            )

    def _commit(self, sink: Sink, reduced: list[ReduceResult]) -> int | None:
        from mrflight.scheduler.direct_scheduler import MAP_AND_REDUCE
        from mrflight.sinks.commit.base import Commit

        parts = tuple(part for result in reduced for part in result.parts)
        writers = self._runner.started["reduce"] + self._runner.started[MAP_AND_REDUCE]
        has_stale_files = writers > len(reduced)
        commit = Commit(
            parts,
            reduced[0].schema,
            self._deadline,
            has_stale_files,
            self._sink_tasks(),
            self._lock() if sink.needs_lock else None,
        )
        sink.setup(commit)
        self._progress.begin("commit", 1)
        bad_rows = self._job.bad_row_files
        self._deadline.run(bad_rows.commit_begins, "the files of bad rows were counted")
        self._interrupts.commit_begins()
        try:
            version = sink.commit(replace(commit, tasks=self._sink_tasks(is_within_commit=True)))
        except BaseException:
            if sink.outcome_unknown:
                bad_rows.keep(is_undecided=True)
            raise
        bad_rows.keep()
        self._metrics.merged = sink.merge_counts()
        self._interrupts.job_ends()
        self._interrupts.clean_up(sink.cleanup)
        self._progress.advance()
        files = sum(not part.is_key_file for part in parts)
        written = format_count(files, "file")
        self._progress.end(written + ("" if version is None else f", version {version}"))
        self._events.record(Committed(files=files, version=version))
        return version

    def _lock(self) -> CommitLock:
        from mrflight.sinks.commit.commit_lease import CommitLock

        client = self._job.client
        timeouts = self._deadline.clamp(client.timeouts)
        return CommitLock(self._job.metadata, client.with_timeouts(timeouts))

    def _sink_tasks(self, *, is_within_commit: bool = False) -> SinkTasks:
        """Return what runs the tasks of a sink; ``is_within_commit``: without own progress."""
        from mrflight.sinks.commit.base import SinkTasks

        runner = self._runner

        def run(tasks: Sequence[SinkTask], note: Callable[[list[Any]], str]) -> list[Any]:
            spec = TaskSetSpec(tasks, lambda task, attempt: runner.submit(task.run, attempt))
            if is_within_commit:
                return runner.run_quietly("rewrite", spec)
            return runner.run("rewrite", spec, note)

        return SinkTasks(run, runner.workers, self._memory.rewriter, self._memory.encoder)
