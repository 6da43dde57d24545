"""Runs a job: plan, sample, map, reduce, commit. Sees tasks and results, never data."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from mrflight.cluster import EmbeddedCluster, PrivateFolder
from mrflight.errors import (
    JobFileError,
    MrflightError,
    NoDataServersError,
    NotRepeatableError,
    SchemaMismatchError,
    ServerUnavailableError,
    ShuffleNotFoundError,
)
from mrflight.executors.local import LocalExecutor
from mrflight.fork_server import ForkServer, load_here
from mrflight.ids import new_job_id, new_writer_id
from mrflight.memory_meter import MemoryMeter
from mrflight.preload import modules_of
from mrflight.progress import ProgressReport
from mrflight.quantities import format_bytes
from mrflight.result import Attempts, JobResult, StageSeconds
from mrflight.run_settings import RunSettings
from mrflight.scratch import ScratchFolder, remove_leftovers
from mrflight.shuffle_watch import LEASE_S, ShuffleWatch
from mrflight.spec import JobSpec
from mrflight.stage import Stages
from mrflight.storage import locate
from mrflight.timeouts import AT_ONCE

if TYPE_CHECKING:  # these need Arrow, which is loaded while the servers start
    from mrflight.executors.base import Executor
    from mrflight.functions import FunctionRef
    from mrflight.plan import JobPlan
    from mrflight.produced import Produced
    from mrflight.shuffle.shuffle import Shuffle
    from mrflight.sinks.base import Sink
    from mrflight.sources.base import Source
    from mrflight.workers.tasks import MapResult, MapTask, ReduceResult

log = logging.getLogger(__name__)

_ASK_AGAIN_S = 0.2


@dataclass(frozen=True)
class _Run:
    """What the one who runs a job gives to it."""

    progress: ProgressReport
    on_commit: Callable[[], None]
    started: float
    """On the monotonic clock."""
    meter: MemoryMeter


def run_job(
    spec: JobSpec,
    folder: Path,
    progress: ProgressReport,
    started: float,
    on_commit: Callable[[], None] = lambda: None,
    *,
    owns_process: bool = False,
) -> JobResult:
    """Run a job to its commit.

    ``folder`` is the job file's: relative paths and modules are found there.
    ``started`` is when the job began on the monotonic clock; ``on_commit`` is
    called before the commit, after which nothing should interrupt the job any
    more. ``owns_process``: this one runs the job and nothing else, and may be
    forked. Whatever is raised, the output is as it was, and every process and
    file of the job is gone.
    Raises JobError where the job or its input is wrong, JobFailedError or
    ShuffleError where it could not finish.
    """
    settings = RunSettings.of(spec, folder)
    modules = modules_of(spec)
    if owns_process:
        load_here(modules)  # before there are folders, which would stay if it was killed meanwhile
    with ExitStack() as stack:
        scratch = stack.enter_context(_scratch_folder(settings.spill_root))
        private = stack.enter_context(closing(PrivateFolder()))
        folders = [private.path, scratch.path]
        fork_server = stack.enter_context(ForkServer(folders, modules, from_here=owns_process))
        if owns_process:
            _keep_connections()  # not before the fork, as servers close theirs
        cluster = None
        if settings.data_servers:
            cluster = EmbeddedCluster(
                private,
                fork_server,
                settings.data_servers,
                settings.memory.servers,
                scratch.path,
                settings.heartbeat_timeout_s,
                progress.tell,
            )
            stack.callback(cluster.close)
        executor = stack.enter_context(
            LocalExecutor(
                settings.workers, fork_server, private.lifeline.path, settings.heartbeat_timeout_s
            )
        )
        meter = stack.enter_context(MemoryMeter(fork_server.pids))
        run = _Run(progress, on_commit, started, meter)
        return _Job(spec, folder, executor, run, settings, scratch.path).run(cluster)


@dataclass(frozen=True)
class _Check:
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
        executor: Executor,
        run: _Run,
        settings: RunSettings,
        scratch: Path,
    ) -> None:
        self._spec = spec
        self._folder = folder
        self._id = new_job_id()
        self._executor = executor
        self._progress = run.progress
        self._on_commit = run.on_commit
        self._clock = _StageClock(run.started)
        timeout_s = settings.timeout_s
        deadline = None if timeout_s is None else run.started + timeout_s
        self._stages = Stages(
            executor, run.progress, deadline, settings.attempts, speculates=settings.speculates
        )
        self._writer_id = new_writer_id()
        self._timeouts = settings.timeouts
        self._bytes_shuffled = 0
        self._meter = run.meter
        self._memory = settings.memory
        self._scratch = scratch

    def run(self, cluster: EmbeddedCluster | None) -> JobResult:
        plan, sink = self._plan()
        version = sink.committed_version()
        if version is not None:
            self._progress.begin("commit", 0)
            self._progress.end(f"run {self._spec.job.run_id!r} was committed before; nothing to do")
            return self._result(plan, version)
        with ExitStack() as stack:
            stack.callback(sink.abort)  # removes what is not committed, and nothing else,
            stack.callback(self._executor.close)  # once no worker writes any more
            watch = stack.enter_context(ShuffleWatch())
            make_shuffle = partial(self._make_shuffle, cluster, plan.partitions, stack)
            shuffle = self._first_shuffle(make_shuffle, cluster, plan)
            self._clock.lap("start")
            tasks = self._sampled(plan)
            mapped, reduced = self._move(plan, tasks, shuffle, sink, make_shuffle, watch)
            self._clock.lap("reduce")
            watch.close()
            version = self._commit(sink, reduced)
            self._clock.lap("commit")
        return self._result(plan, version, mapped, reduced)

    def _plan(self) -> tuple[JobPlan, Sink]:
        """Look at the output and the inputs, and decide what is done."""
        from mrflight.plan import SPLIT_BYTES, plan_job
        from mrflight.sinks import open_sink
        from mrflight.sources import open_source

        spec, options = self._spec, self._spec.storage
        sources = [
            open_source(name, section, self._folder, options, SPLIT_BYTES)
            for name, section in spec.inputs.items()
        ]
        plan = plan_job(
            spec, sources, str(self._folder), self._id, self._executor.workers, self._memory
        )
        run_id = spec.job.run_id
        app_id = f"mrflight/{spec.job.name}/{run_id}" if run_id is not None else None
        _check_output_apart(spec, self._folder, sources)
        return plan, open_sink(spec.output, self._folder, options, self._id, app_id)

    def _first_shuffle(
        self,
        make_shuffle: Callable[[str], Shuffle],
        cluster: EmbeddedCluster | None,
        plan: JobPlan,
    ) -> Shuffle:
        """Make the job's shuffle once the cluster is ready; workers load functions meanwhile."""
        from mrflight.functions import check_function

        checks = [_Check(function) for function in plan.functions]
        first = {check: self._executor.submit(check_function, check.function) for check in checks}
        if cluster is not None:
            cluster.wait()
        shuffle = make_shuffle(self._id)
        self._stages.run_quietly(
            "check",
            checks,
            lambda check, attempt: (
                self._executor.submit(check_function, check.function) if attempt else first[check]
            ),
        )
        return shuffle

    def _make_shuffle(
        self, cluster: EmbeddedCluster | None, partitions: int, stack: ExitStack, name: str
    ) -> Shuffle:
        """A shuffle on the embedded cluster, or on a standing one, which drops it at the end."""
        location = self._spec.cluster.metadata or (cluster.metadata if cluster else "")
        lease_s = None if cluster else LEASE_S
        shuffle = self._created(location, name, partitions, lease_s)
        if cluster is None:
            stack.push(partial(_drop_at_end, shuffle))
        return shuffle

    def _created(self, location: str, name: str, partitions: int, lease_s: float | None) -> Shuffle:
        """A shuffle; waits for servers that may be starting anew at this moment, as at any other.

        Or that were never there, which is told at once.
        """
        from mrflight.client import Cluster

        replicas, patience_s = self._spec.shuffle.replicas, self._timeouts.reconnect_s
        give_up_at = time.monotonic() + patience_s
        token, is_told = new_writer_id(), False
        with Cluster(location, self._timeouts) as client:
            while True:
                try:
                    return client.create_shuffle(name, partitions, replicas, lease_s, token)
                except (ServerUnavailableError, NoDataServersError) as error:
                    if time.monotonic() > give_up_at:
                        raise
                    if not is_told:
                        self._progress.tell(f"{error}; asked again for {patience_s:g} s")
                        is_told = True
                time.sleep(_ASK_AGAIN_S)

    def _sampled(self, plan: JobPlan) -> tuple[MapTask, ...]:
        """The map tasks, a range partitioner's with its boundaries."""
        if not plan.sample_tasks:
            return plan.map_tasks
        import pyarrow as pa

        from mrflight.shuffle.partitioners import choose_boundaries
        from mrflight.workers.tasks import run_sample

        samples = self._stages.run(
            "sample", plan.sample_tasks, lambda task, _: self._executor.submit(run_sample, task)
        )
        try:
            sample = pa.concat_tables(samples, promote_options="permissive")
        except pa.ArrowException as error:
            raise SchemaMismatchError(
                f"the keys of the inputs do not go together: {error}; give them the same types"
            ) from error
        spreads = plan.reduction.sorts_rows  # groups and functions want equal keys together
        boundaries = choose_boundaries(
            sample, sample.column_names, plan.partitions, repeats=spreads
        )
        maps = len(plan.map_tasks) if spreads else None
        return tuple(
            replace(task, partitioner=replace(task.partitioner, boundaries=boundaries, maps=maps))
            for task in plan.map_tasks
        )

    def _move(
        self,
        plan: JobPlan,
        tasks: tuple[MapTask, ...],
        shuffle: Shuffle,
        sink: Sink,
        make_shuffle: Callable[[str], Shuffle],
        watch: ShuffleWatch,
    ) -> tuple[list[MapResult], list[ReduceResult]]:
        """Map and reduce. From the beginning, where what is lost cannot be made again alone."""
        for number in range(1, self._spec.job.attempts + 1):
            mapped = self._mapped(tasks, shuffle, watch)
            try:
                results = self._map(mapped)
                self._clock.lap("map")
                return results, self._reduce(plan, mapped, sink, make_shuffle)
            except NotRepeatableError as error:
                if number == self._spec.job.attempts:
                    raise
                self._progress.tell(f"all maps and reduces are made again: {error}")
                watch.remove(shuffle)
                _drop(shuffle)
                shuffle = make_shuffle(f"{self._id}-{number}")
        raise AssertionError("there is at least one attempt")

    def _mapped(
        self, tasks: tuple[MapTask, ...], shuffle: Shuffle, watch: ShuffleWatch
    ) -> Produced[MapTask, MapResult]:
        """The job's shuffle, and how it is written."""
        from mrflight.losses import Losses
        from mrflight.produced import Produced
        from mrflight.workers.tasks import run_map

        return Produced(
            shuffle,
            "map",
            tasks,
            lambda task, attempt: self._executor.submit(
                run_map, task, attempt, shuffle, self._writer_id
            ),
            self._writer_id,
            self._stages,
            watch,
            Losses(),
        )

    def _map(self, mapped: Produced[MapTask, MapResult]) -> list[MapResult]:
        def note(results: list[MapResult]) -> str:
            self._bytes_shuffled = mapped.shuffle.health().size_bytes
            rows = sum(result.rows_in for result in results)
            return f"{rows:,} rows read, {format_bytes(self._bytes_shuffled)} shuffled"

        return mapped.write(note)

    def _reduce(
        self,
        plan: JobPlan,
        mapped: Produced[MapTask, MapResult],
        sink: Sink,
        make_shuffle: Callable[[str], Shuffle],
    ) -> list[ReduceResult]:
        from mrflight.reduce_stage import ReduceStage
        from mrflight.workers.workspace import Workspace

        part_writer = sink.part_writer.within(self._memory.encoder)
        space = Workspace(self._memory.reducer, self._scratch)
        stage = ReduceStage(
            plan, self._stages, part_writer, space, self._memory, make_shuffle, self._writer_id
        )
        return stage.run(mapped)

    def _commit(self, sink: Sink, reduced: list[ReduceResult]) -> int | None:
        from mrflight.sinks.base import Commit

        self._progress.begin("commit", 1)
        self._on_commit()
        parts = tuple(part for result in reduced for part in result.parts)
        version = sink.commit(Commit(parts, reduced[0].schema))
        self._progress.advance()
        self._progress.end(
            f"{len(parts)} files" + ("" if version is None else f", version {version}")
        )
        return version

    def _result(
        self,
        plan: JobPlan,
        version: int | None,
        mapped: list[MapResult] | None = None,
        reduced: list[ReduceResult] | None = None,
    ) -> JobResult:
        mapped, reduced = mapped or [], reduced or []
        return JobResult(
            job_id=self._id,
            state="committed",
            rows_in=sum(result.rows_in for result in mapped),
            rows_out=sum(result.rows_out for result in reduced),
            partitions=plan.partitions,
            bytes_shuffled=self._bytes_shuffled,
            seconds=self._clock.seconds(),
            table=locate(self._spec.output.table, self._folder, self._spec.storage).url,
            version=version,
            attempts=Attempts(
                map=self._stages.started["map"],
                reduce=self._stages.started["reduce"] + self._stages.started["merge"],
                failed=self._stages.failed,
            ),
            peak_memory_bytes=self._meter.peak_bytes,
        )


class _StageClock:
    """Wall time, stage by stage."""

    def __init__(self, started: float) -> None:
        self._started = self._lap = started
        self._laps: dict[str, float] = {}

    def lap(self, stage: str) -> None:
        now = time.monotonic()
        self._laps[stage] = now - self._lap
        self._lap = now

    def seconds(self) -> StageSeconds:
        laps = {stage: round(seconds, 4) for stage, seconds in self._laps.items()}
        return StageSeconds(total=round(time.monotonic() - self._started, 4), **laps)


def _check_output_apart(spec: JobSpec, folder: Path, sources: list[Source]) -> None:
    """Raise JobFileError where a rerun would read what this run writes as part of its input.

    A table that is input and output as a whole is no such case: it is read before it is written.
    """
    output = locate(spec.output.table, folder, spec.storage).path
    for source in sources:
        given = locate(spec.inputs[source.name].path, folder, spec.storage).path
        inside = [file for file in source.files if file.startswith(f"{output}/")]
        lies_below = output.startswith(f"{given}/")
        if given != output and (inside or lies_below):
            raise JobFileError(
                f"output.table: {output} lies in what inputs.{source.name}.path reads, {given}; "
                "the next run would read its files as input: choose another folder"
            )


def _scratch_folder(root: Path) -> ScratchFolder:
    """The job's folder below ``root``, which is cleared of what dead processes left."""
    scratch = ScratchFolder("job", root)
    try:
        remove_leftovers(root)
        _ = scratch.path  # which makes it
    except OSError as error:
        raise JobFileError(
            f"cluster.spill_dir: no folder can be made below {root}: {error}; choose another"
        ) from error
    return scratch


def _keep_connections() -> None:
    """Let this process, which ends with its job, connect to the metadata server once."""
    from mrflight.shuffle.connections import keep_idle

    keep_idle()


def _drop_at_end(
    shuffle: Shuffle,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
) -> None:
    """Drop it; a job that failed has waited for servers already, or was interrupted."""
    _drop(shuffle if error is None else replace(shuffle, timeouts=AT_ONCE))


def _drop(shuffle: Shuffle) -> None:
    """Free the shuffle on a standing cluster; what became of the job is decided before this."""
    try:
        shuffle.drop()
    except ShuffleNotFoundError:
        log.debug("shuffle %s has been dropped already", shuffle.id)
    except MrflightError as error:
        log.warning("shuffle %s stays on the cluster: %s", shuffle.id, error)
