"""The output of a stage in a shuffle, and the recovery of the tasks that write it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, Generic, Protocol, TypeVar

import msgspec
import pyarrow as pa

from mrflight.errors import (
    InconsistentMapOutputError,
    MapOutputLostError,
    MrflightError,
    NoDataServersError,
)
from mrflight.events.kinds import QueryStage
from mrflight.ids import new_writer_id
from mrflight.scheduler.recovery.fetch_failures import FetchFailureReporter
from mrflight.scheduler.recovery.protocol import Resubmit, Stop
from mrflight.scheduler.shuffles import JobShuffles
from mrflight.scheduler.stage_runner import Note, StageRunner
from mrflight.scheduler.task_set import TaskSetSpec
from mrflight.shuffle.client.shuffle import Shuffle
from mrflight.shuffle.wire.partition_info import PartitionInfo
from mrflight.shuffle.wire.protocol import ShuffleHealth
from mrflight.system.progress import Work


class RunContext(msgspec.Struct, frozen=True):
    """The objects that all shuffles of one run of a job's stages use.

    Lost output is recovered within a run. If it cannot be, the job starts another run.
    """

    runner: StageRunner
    shuffles: JobShuffles
    failures: FetchFailureReporter
    writer_id: str = msgspec.field(default_factory=new_writer_id)
    """The one writer of all attempts of the run, which differ by their numbers."""


class WritingTask(Protocol):
    """A task that writes one map of a shuffle."""

    @property
    def name(self) -> str: ...

    @property
    def map_id(self) -> int: ...


T = TypeVar("T", bound=WritingTask)
R = TypeVar("R")
U = TypeVar("U")

Layout = tuple[pa.Schema, list[PartitionInfo]]


class _KnownLayout(msgspec.Struct, frozen=True):
    """The layout of a shuffle whose maps are done."""

    version: int
    """The version of the placement."""
    schema: pa.Schema
    infos: tuple[PartitionInfo, ...]


class ShuffleOutput(Generic[T, R]):
    """A shuffle of a job and the tasks that write it, so that lost maps can be written again."""

    def __init__(
        self,
        run: RunContext,
        shuffle: Shuffle,
        stage: str,
        tasks: Iterable[T],
        submit: Callable[[T, int], Future[R]],
    ) -> None:
        """``shuffle`` has just been created. ``tasks`` are ordered by map id, from 0 on.

        ``submit`` starts an attempt of a task, which writes with the run's ``writer_id``.
        """
        self.run = run
        self.shuffle = shuffle
        self.version = 0
        """The placement version of the last `look`."""
        self._layout: _KnownLayout | None = None
        """The last `layout`."""
        self.unsent_schema: pa.Schema | None = None
        """The schema if there are no rows, from a task that did not send it."""
        self.runs: QueryStage | None = None
        """The stage of a query whose result the tasks make."""
        self.tasks = list(tasks)
        self._stage = stage
        self._submit = submit

    @property
    def clamped(self) -> Shuffle:
        """The shuffle for calls that begin now and must not outlast the job."""
        return self.run.failures.clamp(self.shuffle)

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of the rows, as of the last `layout`."""
        return self._layout.schema if self._layout is not None else None

    @property
    def inputs(self) -> Sequence[AnyShuffleOutput]:
        """The outputs of earlier stages that the tasks read."""
        return ()

    def look(self) -> ShuffleHealth:
        """Ask for the shuffle's health, and remember the placement version as known."""
        health = self.clamped.health()
        self.version = health.version
        return health

    def refresh(self) -> None:
        """Point the tasks to the current locations of the partitions that they read."""

    def write(self, note: Note[R] | None = None) -> list[R]:
        """Run all tasks and return their results in order."""
        return self.run.runner.run(self._stage, self._task_set(self.tasks), note)

    def repair(self) -> None:
        """Run the maps again whose rows are lost, until none is."""
        self.await_servers()
        while lost := (health := self.look()).lost_maps:
            self.report_losses(health)
            for read in self.inputs:
                read.repair()
            self.refresh()
            tasks = [self.tasks[map_id] for map_id in lost]
            self.run.runner.run_quietly(self._stage, self._task_set(tasks))
            self.await_servers()

    def await_servers(self) -> None:
        """Wait until every partition has a server."""
        self.run.failures.await_servers([self.shuffle])

    def layout(self) -> Layout:
        """Return the schema and the partitions, with all rows that were written to them.

        Later changes of the placement make a recovery stale. Raises InconsistentMapOutputError if
        the metadata server has lost commits.
        """
        while True:
            try:
                # First, so that a change during the next calls makes the result stale.
                health = self.look()
                if self._layout is None or not self._is_intact(health, self._layout.version):
                    self._layout = self._ask_for_layout()
                return self._layout.schema, list(self._layout.infos)
            except (MapOutputLostError, NoDataServersError):
                self.repair()

    def _ask_for_layout(self) -> _KnownLayout:
        version = self.version
        schema, infos = self.clamped.layout()
        self._check_maps()
        if self.unsent_schema is not None and not any(info.rows for info in infos):
            schema = self.unsent_schema
        self.run.runner.record_partitions(
            self._stage,
            self.shuffle.id,
            [info.rows for info in infos],
            [info.size_bytes for info in infos],
        )
        return _KnownLayout(version, schema, tuple(infos))

    def _is_intact(self, health: ShuffleHealth, version: int) -> bool:
        """Return whether all maps still count, and the placement is that of ``version``.

        Then no commit follows, and so the partitions have the same locations and rows.
        """
        is_whole = health.maps == len(self.tasks) and not health.lost_maps
        return is_whole and health.version == version

    def _check_maps(self) -> None:
        """Check that no commit is forgotten; no other check would miss its rows.

        If the last commit in the journal is damaged, the metadata server takes it for one that was
        never finished, and then the partitions do not promise its rows.
        """
        forgotten = len(self.tasks) - self.clamped.health().maps
        if forgotten:
            raise InconsistentMapOutputError(
                f"the metadata server has forgotten {forgotten} of {len(self.tasks)} "
                f"{self._stage} tasks that were done"
            )

    def infos(self) -> dict[int, PartitionInfo]:
        """Return the partitions of `layout` by their numbers."""
        return {info.partition: info for info in self.layout()[1]}

    def has_changed(self, version: int) -> bool:
        """Return whether the placement is known to be newer than ``version``. Does not ask."""
        return self.run.shuffles.monitor.has_changed(self.shuffle, version)

    def report_losses(self, health: ShuffleHealth) -> None:
        """Report how many tasks run again, and which servers held their rows."""
        tasks = f"{len(health.lost_maps)} of {len(self.tasks)} {self._stage} tasks"
        cause = f"their output was lost with {', '.join(health.lost_at)}"
        self.run.runner.events.notice(
            "output_lost",
            f"{tasks} run again, as {cause}",
            subject=tasks,
            cause=cause,
            action="they run again",
        )

    def report_restarts(self, tasks: int) -> None:
        """Report how many tasks restart although no finished output was lost."""
        of_tasks = f"{tasks} of {len(self.tasks)} {self._stage} tasks"
        cause = "a data server that they use was removed from the shuffle"
        self.run.runner.events.notice(
            "moved",
            f"{of_tasks} restart, as {cause}",
            subject=of_tasks,
            cause=cause,
            action="they restart",
        )

    def _task_set(self, tasks: Sequence[T]) -> TaskSetSpec[T, R]:
        recovery = MapRecovery(self, tasks)
        size_bytes = sum(map(self._size_bytes, tasks))
        return TaskSetSpec(
            tasks,
            self._submit,
            self._discard_stale_attempts,
            recovery,
            self._work,
            size_bytes,
            self.runs,
        )

    def _size_bytes(self, task: T) -> int:
        """Return the bytes that a task reads; 0 if they are not known."""
        return 0

    def _work(self, task: T, result: R) -> Work:
        """Return what a task has done, for the progress report."""
        return Work()

    def _discard_stale_attempts(self, task: T, attempts: int) -> None:
        self.clamped.drop_stale_attempts(task.map_id, attempts, self.run.writer_id)


AnyShuffleOutput = ShuffleOutput[Any, Any]


class PlacementRecovery(ABC, Generic[U]):
    """Recovers a stage by the current placement of the shuffles that it uses."""

    def __init__(self, outputs: Sequence[AnyShuffleOutput]) -> None:
        """``outputs`` are distinct; the tasks were made for the ``version`` of each."""
        self._outputs = outputs
        self._versions = [output.version for output in outputs]

    def is_stale(self) -> bool:
        """See `Recovery.is_stale`."""
        pairs = zip(self._outputs, self._versions, strict=True)
        return any(output.has_changed(version) for output, version in pairs)

    def recover(
        self, error: Exception | None, unfinished: Sequence[int], stop: Stop
    ) -> Resubmit[U] | None:
        """See `Recovery.recover`: report, look, and let the subclass repair and resubmit."""
        if error is not None and not self._report(error):
            return None
        if not self._look():
            return None
        resubmitted = self._resubmit(unfinished, stop, is_reported=error is not None)
        self._versions = [output.version for output in self._outputs]  # those of the new tasks
        return resubmitted

    @abstractmethod
    def _resubmit(self, unfinished: Sequence[int], stop: Stop, *, is_reported: bool) -> Resubmit[U]:
        """Wait for servers, repair what the stage reads, and return the tasks to run again.

        ``is_reported``: the task set reports the failure that led here.
        """

    @abstractmethod
    def _outputs_with(self, partition: int) -> Sequence[AnyShuffleOutput]:
        """Return the outputs from which the stage reads the partition with this number."""

    def _report(self, error: Exception) -> bool:
        """Return whether an attempt may have failed due to a change of these shuffles."""
        outputs = self._outputs
        if isinstance(error, MrflightError) and error.partition is not None:
            # In other shuffles the partition with the same number is intact.
            outputs = self._outputs_with(error.partition)
        failures = self._outputs[0].run.failures
        return failures.report(error, [output.shuffle for output in outputs])

    def _look(self) -> bool:
        """Return whether a placement has changed. Raises the reason if that cannot be known."""
        self._outputs[0].run.shuffles.monitor.check()
        before = self._versions
        self._versions = [output.look().version for output in self._outputs]
        return self._versions != before


class MapRecovery(PlacementRecovery[T]):
    """Recovers a stage that writes some maps of a shuffle."""

    def __init__(self, output: ShuffleOutput[T, Any], tasks: Sequence[T]) -> None:
        super().__init__([*output.inputs, output])
        self._output = output
        self._maps = [task.map_id for task in tasks]

    def _outputs_with(self, partition: int) -> Sequence[AnyShuffleOutput]:
        return self._output.inputs

    def _resubmit(self, unfinished: Sequence[int], stop: Stop, *, is_reported: bool) -> Resubmit[T]:
        """Resubmit the unfinished maps, which use a lost server, and those whose rows are lost."""
        output = self._output
        stop(unfinished)
        for read in output.inputs:
            read.repair()
        output.await_servers()
        output.refresh()
        if lost := (health := output.look()).lost_maps:
            output.report_losses(health)
        elif not is_reported:
            output.report_restarts(len(unfinished))
        numbers = {map_id: number for number, map_id in enumerate(self._maps)}
        again = {*unfinished, *(numbers[map_id] for map_id in lost if map_id in numbers)}
        return {number: output.tasks[self._maps[number]] for number in sorted(again)}
