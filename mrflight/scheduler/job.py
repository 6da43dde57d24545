"""Runs a job to its commit: analyze, run the stages, commit. Sees tasks, never data.

`run_job` opens the `JobRun`, whose `StageScheduler` knows nothing of jobs, runtimes and commits.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mrflight.config.spec import JobSpec
from mrflight.events.kinds import Committed
from mrflight.events.profile import profile
from mrflight.events.recorder import Recorder
from mrflight.result import JobResult
from mrflight.scheduler.job_events import job_planned
from mrflight.scheduler.job_run import JobRun, open_job
from mrflight.scheduler.metrics import JobMetrics
from mrflight.system.memory_sampler import MemorySampler
from mrflight.system.signals import Interrupts
from mrflight.units import format_count

if TYPE_CHECKING:  # these need Arrow, which is loaded while the servers start
    from mrflight.planner.job_plan import JobPlan
    from mrflight.sinks.commit.base import Sink
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
        workers = job.runner.workers
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
        from mrflight.scheduler.job_commit import JobCommit

        commit = JobCommit(self._job, reduced)
        commit.setup(sink)
        self._progress.begin("commit", 1)
        bad_rows = self._job.bad_row_files
        self._deadline.run(bad_rows.commit_begins, "the files of bad rows were counted")
        self._interrupts.commit_begins()
        try:
            version = commit.run(sink)
        except BaseException:
            if sink.outcome_unknown:
                bad_rows.keep(is_undecided=True)
            raise
        bad_rows.keep()
        self._metrics.merged = sink.merge_counts()
        self._interrupts.job_ends()
        self._interrupts.clean_up(sink.cleanup)
        self._progress.advance()
        written = format_count(commit.files, "file")
        self._progress.end(written + ("" if version is None else f", version {version}"))
        self._events.record(Committed(files=commit.files, version=version))
        return version
