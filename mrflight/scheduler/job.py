"""Runs a job: plan, sample, map, reduce, commit. Sees tasks and results, never data."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from mrflight.config.settings import RunSettings
from mrflight.config.spec import JobSpec
from mrflight.errors import JobFileError
from mrflight.ids import new_job_id
from mrflight.result import Attempts, JobResult
from mrflight.runtime.job_runtime import JobCluster, JobPlace, Surroundings
from mrflight.runtime.placing import open_place
from mrflight.runtime.preload import modules_for
from mrflight.scheduler.metrics import JobMetrics
from mrflight.scheduler.shuffles import JobShuffles
from mrflight.scheduler.stage_runner import StageRunner
from mrflight.storage import locate
from mrflight.storage.prepare import prepare_storage
from mrflight.system.deadlines import Deadline
from mrflight.system.fork_server.client import load_here
from mrflight.system.memory_sampler import MemorySampler
from mrflight.system.progress import ProgressReport
from mrflight.system.scratch import ScratchFolder, remove_dead_folders
from mrflight.system.signals import Interrupts

if TYPE_CHECKING:  # these need Arrow, which is loaded while the servers start
    from mrflight.config.functions import FunctionRef
    from mrflight.planner.job_plan import JobPlan
    from mrflight.scheduler.stage_scheduler import StageScheduler
    from mrflight.sinks.base import Sink
    from mrflight.tasks.tasks import ReduceResult


class _Run(msgspec.Struct, frozen=True):
    """What the one who runs a job gives to it."""

    progress: ProgressReport
    interrupts: Interrupts
    meter: MemorySampler
    record: JobMetrics


def run_job(
    spec: JobSpec,
    folder: Path,
    progress: ProgressReport,
    record: JobMetrics,
    *,
    interrupts: Interrupts | None = None,
    owns_process: bool = False,
) -> JobResult:
    """Run a job to its commit.

    ``folder`` is the job file's: relative paths and modules are found there.
    ``record`` is filled in as far as the job comes; ``interrupts`` is
    told how far it is. ``owns_process``: this one runs the job and nothing else, and may be
    forked. Whatever is raised, the output is as it was, and every process and file of the job
    is gone.
    Raises JobError where the job or its input is wrong, JobFailedError or
    ShuffleError where it could not finish.
    """
    interrupts = interrupts or Interrupts()
    prepare_storage(spec, folder)
    settings = RunSettings.of(spec, folder)
    if owns_process and spec.cluster.executor == "local":
        # Before there are folders, which would stay if it was killed meanwhile.
        load_here(modules_for(spec))
    with ExitStack() as stack:
        scratch = stack.enter_context(ScratchFolder("job", settings.spill_root))
        _make(scratch)  # not before it is entered: an interrupt may come at any moment
        around = Surroundings(
            spec, folder, settings, scratch.path, interrupts, progress, owns_process
        )
        place = open_place(stack, around)
        meter = stack.enter_context(MemorySampler(place.pids))
        run = _Run(progress, interrupts, meter, record)
        return _Job(spec, folder, place, run).run()


class _Check(msgspec.Struct, frozen=True):
    """A look at a user's function, before there is much to lose."""

    function: FunctionRef

    @property
    def name(self) -> str:
        return f"check of {self.function}"


class _Job:
    """One run of one job."""

    def __init__(
        self,
        spec: JobSpec,
        folder: Path,
        place: JobPlace,
        run: _Run,
    ) -> None:
        settings = place.settings
        self._spec = spec
        self._folder = folder
        self._id = new_job_id()
        self._record = run.record
        self._record.job_id = self._id
        self._executor = place.executor
        self._cluster = place.cluster
        self._progress = run.progress
        self._interrupts = run.interrupts
        self._clock = run.record.clock
        self._deadline = Deadline(self._clock.started + settings.timeout_s)
        self._stages = StageRunner(
            place.executor,
            run.progress,
            self._deadline,
            settings.attempts,
            speculates=settings.speculates,
        )
        self._timeouts = settings.timeouts
        self._meter = run.meter
        self._memory = settings.memory
        self._scratch = place.scratch

    def run(self) -> JobResult:
        try:
            self._run()
        finally:
            self._record.attempts = self._attempts()
            self._record.peak_memory_bytes = self._meter.peak_bytes
        return self._record.result("committed")

    def _run(self) -> None:
        from mrflight.planner.analyze import analyze

        cluster = self._cluster
        output = self._spec.output.table
        self._record.table = locate(output, self._folder, self._spec.storage).url
        plan, sink = self._deadline.run(
            partial(
                analyze, self._spec, self._folder, self._id, self._executor.workers, self._memory
            ),
            "the inputs and the output were looked at, with nothing committed",
        )
        self._record.partitions = plan.last.partitions
        self._record.input_versions = plan.input_versions
        if sink.was_committed():
            self._progress.begin("commit", 0)
            self._progress.end(f"run {self._spec.job.run_id!r} was committed before; nothing to do")
            self._record.version = sink.committed_version()
            return
        self._tell_of_fence(sink, is_standing=cluster is None)
        with ExitStack() as stack:
            # Removes what is not committed, and nothing else,
            stack.callback(self._interrupts.clean_up, sink.abort)
            stack.callback(self._executor.close)  # once no worker writes any more
            shuffles = stack.enter_context(self._shuffles(cluster))
            stack.callback(self._end)
            with self._deadline.attribute_timeouts():
                self._make_ready(cluster, plan)
                reduced = self._moving(plan, sink, shuffles).run()
            if self._spec.output.mode == "merge":
                shuffles.drop()  # all is in part files, and rewriting takes memory as well
            self._clock.begin("commit")
            self._deadline.check("nothing committed")
            shuffles.watch.close()
            self._record.version = self._commit(sink, reduced, self._metadata(cluster))
            self._record.rows_out = sum(result.rows_out for result in reduced)

    def _end(self) -> None:
        """Whatever the job comes to. A store that it has waited for in vain may stand still yet."""
        self._clock.stop()
        self._interrupts.job_ends()
        if self._deadline.expired():
            self._interrupts.bound_clean_up()

    def _metadata(self, cluster: JobCluster | None) -> str:
        return self._spec.cluster.metadata or (cluster.metadata if cluster else "")

    def _tell_of_fence(self, sink: Sink, *, is_standing: bool) -> None:
        """Other jobs do not ask the metadata server of this one."""
        if sink.needs_fence and not is_standing:
            self._progress.notify(
                f"{self._record.table}: let no other job commit to this table at the same time, or "
                "name one metadata server in cluster.metadata of all of them, on two hosts by a "
                "tunnel: HopsFS does not tell who of two was first"
            )

    def _shuffles(self, cluster: JobCluster | None) -> JobShuffles:
        """On the embedded cluster, or on a standing one."""
        return JobShuffles(
            self._metadata(cluster),
            self._spec.shuffle.replicas,
            self._timeouts,
            self._deadline,
            self._progress,
            is_standing=cluster is None,
        )

    def _make_ready(self, cluster: JobCluster | None, plan: JobPlan) -> None:
        """Wait for the cluster; workers load functions meanwhile."""
        from mrflight.config.functions import check_function

        checks = [_Check(function) for function in plan.functions]
        first = {check: self._executor.submit(check_function, check.function) for check in checks}
        if cluster is not None:
            cluster.wait()
        self._stages.run_quietly(
            "check",
            checks,
            lambda check, attempt: (
                self._executor.submit(check_function, check.function) if attempt else first[check]
            ),
        )

    def _moving(self, plan: JobPlan, sink: Sink, shuffles: JobShuffles) -> StageScheduler:
        from mrflight.scheduler.stage_scheduler import StageScheduler
        from mrflight.tasks.task_memory import Workspace

        return StageScheduler(
            plan,
            self._stages,
            shuffles,
            sink.part_writer.within(self._memory.encoder),
            Workspace(self._memory.reducer, self._scratch),
            self._memory,
            self._record,
            self._deadline,
            self._spec.job.attempts,
        )

    def _commit(self, sink: Sink, reduced: list[ReduceResult], metadata: str) -> int | None:
        from mrflight.scheduler.sink_stage import sink_tasks
        from mrflight.sinks.base import Commit
        from mrflight.sinks.delta.commit_lease import CommitFence

        parts = tuple(part for result in reduced for part in result.parts)
        has_losers = self._stages.started["reduce"] > len(reduced)
        fence = CommitFence(metadata, self._deadline.clamp(self._timeouts))
        tasks = sink_tasks(self._stages, self._memory)
        commit = Commit(parts, reduced[0].schema, self._deadline, has_losers, tasks, fence)
        sink.prepare(commit)
        self._progress.begin("commit", 1)
        self._interrupts.commit_begins()
        within = sink_tasks(self._stages, self._memory, quietly=True)
        version = sink.land(replace(commit, tasks=within))
        self._record.merged = sink.merged()
        self._interrupts.job_ends()
        self._interrupts.clean_up(sink.finish)
        self._progress.advance()
        named = sum(not part.is_key_file for part in parts)
        self._progress.end(f"{named} files" + ("" if version is None else f", version {version}"))
        return version

    def _attempts(self) -> Attempts:
        started, failed = self._stages.started, self._stages.failed
        return Attempts(
            _of_kind(started, "map"),
            started["reduce"] + started["merge"],
            _of_kind(failed, "map") + failed["reduce"] + failed["merge"],
        )


def _of_kind(counts: Mapping[str, int], kind: str) -> int:
    """Of the stages that are called so, or so and by a name."""
    return sum(count for stage, count in counts.items() if stage.split(" ")[0] == kind)


def _make(scratch: ScratchFolder) -> None:
    """Make the job's folder, and clear its root of what dead processes left."""
    try:
        remove_dead_folders(scratch.root)
        _ = scratch.path  # which makes it
    except OSError as error:
        raise JobFileError(
            f"cluster.spill_dir: no folder can be made below {scratch.root}: {error}; choose "
            "another"
        ) from error
