"""Runs a job: analyze, start the cluster, run the stages, commit. Sees tasks, never data.

`run_job` starts the runtime and hands the stages to the `StageScheduler`, which knows nothing of
jobs, runtimes and commits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from mrflight.config.settings import RunSettings
from mrflight.config.spec import JobSpec
from mrflight.errors import JobFileError
from mrflight.ids import new_job_id
from mrflight.result import Attempts, JobResult
from mrflight.runtime.job_runtime import JobRuntime, RuntimeOptions
from mrflight.runtime.preload import modules_for
from mrflight.runtime.start import open_runtime
from mrflight.scheduler.metrics import JobMetrics
from mrflight.scheduler.shuffles import JobShuffles
from mrflight.scheduler.stage_runner import StageRunner
from mrflight.scheduler.task_set import TaskSetSpec
from mrflight.storage import locate
from mrflight.storage.option_checks import prepare_storage
from mrflight.system.deadlines import Deadline
from mrflight.system.fork_server.client import load_here
from mrflight.system.memory_sampler import MemorySampler
from mrflight.system.progress import ProgressReport
from mrflight.system.scratch import ScratchFolder, remove_dead_folders
from mrflight.system.signals import Interrupts
from mrflight.units import format_count

if TYPE_CHECKING:  # these need Arrow, which is loaded while the servers start
    from mrflight.config.functions import FunctionRef
    from mrflight.planner.job_plan import JobPlan
    from mrflight.sinks.commit.base import Sink, SinkTask, SinkTasks
    from mrflight.tasks.tasks import ReduceResult


def run_job(
    spec: JobSpec,
    folder: Path,
    progress: ProgressReport,
    metrics: JobMetrics,
    *,
    interrupts: Interrupts | None = None,
    owns_process: bool = False,
) -> JobResult:
    """Run a job to its commit.

    ``folder`` is that of the job file: relative paths and modules are found there.
    ``metrics`` are filled in as far as the job comes, and ``interrupts`` learn how far it is.
    ``owns_process``: this process does nothing but run the job, and may be forked.
    If anything is raised, the output is unchanged, and all processes and files of the job are gone.
    Raises JobError if the job or its input is wrong, and JobFailedError or ShuffleError if it
    could not finish.
    """
    interrupts = interrupts or Interrupts()
    prepare_storage(spec, folder)
    settings = RunSettings.of(spec, folder)
    if owns_process and spec.cluster.executor == "local":
        # Before there are folders, which would stay if this process was killed meanwhile.
        load_here(modules_for(spec))
    with ExitStack() as stack:
        scratch = stack.enter_context(ScratchFolder("job", settings.spill_root))
        _create(scratch)  # not before it is entered: an interrupt may come at any moment
        options = RuntimeOptions(
            spec, folder, settings, scratch.path, interrupts, progress, owns_process
        )
        runtime = open_runtime(stack, options)
        meter = stack.enter_context(MemorySampler(runtime.pids))
        return _Job(options, runtime, metrics, meter).run()


class _FunctionCheck(msgspec.Struct, frozen=True):
    """A task that imports a user's function, before there is much work to lose."""

    function: FunctionRef

    @property
    def name(self) -> str:
        return f"check of {self.function}"


class _Job:
    """One run of one job."""

    def __init__(
        self,
        options: RuntimeOptions,
        runtime: JobRuntime,
        metrics: JobMetrics,
        meter: MemorySampler,
    ) -> None:
        settings = runtime.settings
        metrics.job_id = new_job_id()
        self._spec = options.spec
        self._folder = options.folder
        self._progress = options.progress
        self._interrupts = options.interrupts
        self._runtime = runtime
        self._cluster = runtime.cluster
        self._metrics = metrics
        self._meter = meter
        self._memory = settings.memory
        self._deadline = Deadline(metrics.timer.started + settings.timeout_s)
        self._runner = StageRunner(
            runtime.executor,
            options.progress,
            self._deadline,
            settings.attempts,
            speculates=settings.speculates,
        )

    def run(self) -> JobResult:
        try:
            self._run()
        finally:
            self._metrics.attempts = self._attempts()
            self._metrics.peak_memory_bytes = self._meter.peak_bytes
        return self._metrics.result("committed")

    def _run(self) -> None:
        plan, sink = self._analyze()
        if sink.was_committed():
            self._progress.begin("commit", 0)
            self._progress.end(f"run {self._spec.job.run_id!r} is already committed")
            self._metrics.version = sink.committed_version()
            return
        self._warn_of_other_writers(sink)
        with ExitStack() as stack:
            # Aborting removes what is not committed, and nothing else,
            stack.callback(self._interrupts.clean_up, sink.abort)
            stack.callback(self._runtime.executor.close)  # once no worker writes any more
            shuffles = stack.enter_context(self._shuffles())
            stack.callback(self._end)
            with self._deadline.attribute_timeouts():
                self._wait_until_ready(plan)
                reduced = self._run_stages(plan, sink, shuffles)
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

        output = locate(self._spec.output.table, self._folder, self._spec.storage)
        self._metrics.table = output.url
        workers = self._runner.workers
        plan, sink = self._deadline.run(
            partial(analyze, self._spec, self._folder, self._metrics.job_id, workers, self._memory),
            "the inputs and the output were analyzed, with nothing committed",
        )
        self._metrics.partitions = plan.last.partitions
        self._metrics.input_versions = plan.input_versions
        return plan, sink

    def _end(self) -> None:
        """Stop the timer and bound the clean-up: a store that timed out may still not answer."""
        self._metrics.timer.stop()
        self._interrupts.job_ends()
        if self._deadline.expired():
            self._interrupts.bound_clean_up()

    @property
    def _metadata(self) -> str:
        """The location of the metadata server, of a standing or of the job's own cluster."""
        return self._spec.cluster.metadata or (self._cluster.metadata if self._cluster else "")

    def _warn_of_other_writers(self, sink: Sink) -> None:
        """Warn of a store without put-if-absent if other jobs cannot share the commit lease."""
        if sink.needs_lock and self._cluster is not None:
            self._progress.notify(
                f"{self._metrics.table}: let no other job commit to this table at the same time, "
                "or set cluster.metadata of all of them to the same metadata server (through a "
                "tunnel between two hosts): HopsFS does not tell which of two writers was first"
            )

    def _shuffles(self) -> JobShuffles:
        return JobShuffles(
            self._metadata,
            self._spec.shuffle.replicas,
            self._runtime.settings.timeouts,
            self._deadline,
            self._progress,
            is_standing=self._cluster is None,
        )

    def _wait_until_ready(self, plan: JobPlan) -> None:
        """Wait for the cluster; workers import the users' functions meanwhile."""
        from mrflight.config.functions import check_function

        def submit(check: _FunctionCheck, attempt: int) -> Any:
            if attempt == 0:
                return first[check]
            return self._runner.submit(check_function, check.function)

        checks = [_FunctionCheck(function) for function in plan.functions]
        first = {check: self._runner.submit(check_function, check.function) for check in checks}
        if self._cluster is not None:
            self._cluster.wait()
        self._runner.run_quietly("check", TaskSetSpec(checks, submit))

    def _run_stages(self, plan: JobPlan, sink: Sink, shuffles: JobShuffles) -> list[ReduceResult]:
        from mrflight.scheduler.stage_scheduler import JobContext, StageScheduler
        from mrflight.tasks.task_memory import TaskMemory

        context = JobContext(
            self._runner,
            shuffles,
            self._metrics,
            self._deadline,
            TaskMemory(self._memory.reducer, self._runtime.scratch),
            sink.part_writer.with_memory_limit(self._memory.encoder),
        )
        return StageScheduler(plan, context, self._spec.job.attempts).run()

    def _commit(self, sink: Sink, reduced: list[ReduceResult]) -> int | None:
        from mrflight.sinks.commit.base import Commit
        from mrflight.sinks.commit.commit_lease import CommitLock

        parts = tuple(part for result in reduced for part in result.parts)
        has_stale_files = self._runner.started["reduce"] > len(reduced)
        lock = CommitLock(self._metadata, self._deadline.clamp(self._runtime.settings.timeouts))
        commit = Commit(
            parts, reduced[0].schema, self._deadline, has_stale_files, self._sink_tasks(), lock
        )
        sink.setup(commit)
        self._progress.begin("commit", 1)
        self._interrupts.commit_begins()
        version = sink.commit(replace(commit, tasks=self._sink_tasks(is_within_commit=True)))
        self._metrics.merged = sink.merge_counts()
        self._interrupts.job_ends()
        self._interrupts.clean_up(sink.cleanup)
        self._progress.advance()
        files = format_count(sum(not part.is_key_file for part in parts), "file")
        self._progress.end(files + ("" if version is None else f", version {version}"))
        return version

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

    def _attempts(self) -> Attempts:
        started, failed = self._runner.started, self._runner.failed
        return Attempts(
            _count(started, "map"),
            _count(started, "reduce") + _count(started, "aggregate"),
            sum(_count(failed, kind) for kind in ("map", "reduce", "aggregate")),
        )


def _count(counts: Mapping[str, int], kind: str) -> int:
    """Return the sum for the stages called ``kind``, or ``kind`` followed by a name."""
    return sum(count for stage, count in counts.items() if stage.split(" ")[0] == kind)


def _create(scratch: ScratchFolder) -> None:
    """Create the job's folder, and remove what dead processes left beside it."""
    try:
        remove_dead_folders(scratch.root)
        _ = scratch.path  # which creates it
    except OSError as error:
        raise JobFileError(
            f"cluster.spill_dir: cannot create a folder in {scratch.root}: {error}; choose another"
        ) from error
