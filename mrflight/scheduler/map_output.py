"""A shuffle and the tasks that write it, so that what is lost of it can be made again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from mrflight.errors import (
    InconsistentMapOutputError,
    MapOutputLostError,
    MrflightError,
    NoDataServersError,
)
from mrflight.scheduler.recovery import Resubmit, Stop
from mrflight.scheduler.run_context import RunContext
from mrflight.shuffle.client.shuffle import Shuffle
from mrflight.shuffle.wire.partition_info import PartitionInfo
from mrflight.shuffle.wire.protocol import ShuffleHealth


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


class ShuffleOutput(Generic[T, R]):
    """A shuffle of a job, and how it is written."""

    def __init__(
        self,
        run: RunContext,
        shuffle: Shuffle,
        stage: str,
        tasks: Iterable[T],
        submit: Callable[[T, int], Future[R]],
    ) -> None:
        """The shuffle has just been made. ``tasks`` are in the order of their map ids, from 0 on.

        ``submit`` starts an attempt of one, which writes by the ``writer_id`` of the run.
        """
        self.run = run
        self.shuffle = shuffle
        self.version = 0
        """Of the placement, as it was last looked at."""
        self.schema: pa.Schema | None = None
        """Of the rows, as `layout` last told it."""
        self.tasks = list(tasks)
        self._stage = stage
        self._submit = submit

    @property
    def asked(self) -> Shuffle:
        """The shuffle for who calls now, and has no more time than the job."""
        return self.run.losses.in_time(self.shuffle)

    @property
    def reads(self) -> Sequence[AnyShuffleOutput]:
        """The shuffles that the tasks read."""
        return ()

    def look(self) -> ShuffleHealth:
        """How the shuffle is now, which is not news any more."""
        health = self.asked.health()
        self.version = health.version
        return health

    def refresh(self) -> None:
        """Let the tasks go by what is true now of the shuffles that they read."""

    def write(
        self, note: Callable[[list[R]], str] = lambda results: f"{len(results)} done"
    ) -> list[R]:
        """Run all tasks; the results in their order."""
        recovery = MapRecovery(self, self.tasks)
        return self.run.stages.run(
            self._stage, self.tasks, self._submit, note, self._discard_losers, recovery
        )

    def repair(self) -> None:
        """Write again what is lost, until all is there."""
        self.await_servers()
        while lost := (health := self.look()).lost_maps:
            self.tell_of_losses(health)
            for read in self.reads:
                read.repair()
            self.refresh()
            tasks = [self.tasks[map_id] for map_id in lost]
            recovery = MapRecovery(self, tasks)
            self.run.stages.run_quietly(
                self._stage, tasks, self._submit, self._discard_losers, recovery
            )
            self.await_servers()

    def await_servers(self) -> None:
        """Wait until there is a server for every partition."""
        self.run.losses.await_servers([self.shuffle])

    def layout(self) -> Layout:
        """The schema and the partitions, with all that was written to them.

        What changes of them from now on is news. InconsistentMapOutputError where the metadata
        server does not know of all that was.
        """
        while True:
            try:
                self.look()  # before: what changes in between is news then
                layout = self.asked.layout()
                self._check_maps()
                self.schema = layout[0]
                return layout
            except (MapOutputLostError, NoDataServersError):
                self.repair()

    def _check_maps(self) -> None:
        """Look that no map is forgotten: nobody else would miss its rows.

        A commit that was damaged at the end of the journal is taken for one that was never
        finished, and the partitions promise no row of it then.
        """
        forgotten = len(self.tasks) - self.asked.health().maps
        if forgotten:
            raise InconsistentMapOutputError(
                f"the metadata server has forgotten {forgotten} of {len(self.tasks)} "
                f"{self._stage} tasks that were done"
            )

    def infos(self) -> dict[int, PartitionInfo]:
        """The partitions of `layout` by their numbers."""
        return {info.partition: info for info in self.layout()[1]}

    def has_changed(self, version: int) -> bool:
        """Whether the placement is known not to be this version any more. Does not ask."""
        return self.run.watch.has_changed(self.shuffle, version)

    def tell_of_losses(self, health: ShuffleHealth) -> None:
        """Say what is made again, and who had it."""
        self.run.stages.notify(
            f"{len(health.lost_maps)} of {len(self.tasks)} {self._stage} tasks send again what was "
            f"lost with {', '.join(health.lost_at)}"
        )

    def tell_of_changes(self, tasks: int) -> None:
        """Say what is started again, where nothing was lost of what is done."""
        self.run.stages.notify(
            f"{tasks} of {len(self.tasks)} {self._stage} tasks start again, as a data server that "
            "they wrote to or read from is not used any more"
        )

    def _discard_losers(self, task: T, attempts: int) -> None:
        self.asked.drop_stale_attempts(task.map_id, attempts, self.run.writer_id)


AnyShuffleOutput = ShuffleOutput[Any, Any]


class PlacementRecovery(ABC, Generic[U]):
    """Mends a stage by how the shuffles that it uses are placed now."""

    def __init__(self, uses: Sequence[AnyShuffleOutput]) -> None:
        """``uses`` are without doubles, and their ``version`` is the one that the tasks go by."""
        self._uses = uses
        self._versions = [produced.version for produced in uses]

    def is_stale(self) -> bool:
        """Whether one is known to have changed. Does not ask."""
        pairs = zip(self._uses, self._versions, strict=True)
        return any(produced.has_changed(version) for produced, version in pairs)

    def recover(
        self, error: Exception | None, unfinished: Sequence[int], stop: Stop
    ) -> Resubmit[U] | None:
        """See `Recovery.recover`."""
        if error is not None and not self._report(error):
            return None
        if not self._look():
            return None
        anew = self._anew(unfinished, stop, is_told=error is not None)
        self._versions = [produced.version for produced in self._uses]  # which ``anew`` goes by
        return anew

    @abstractmethod
    def _anew(self, unfinished: Sequence[int], stop: Stop, *, is_told: bool) -> Resubmit[U]:
        """The tasks to be done anew, once all is there that they need.

        ``is_told``: the stage says why it does so.
        """

    @abstractmethod
    def _read_with(self, partition: int) -> Sequence[AnyShuffleOutput]:
        """Of which shuffles the stage reads a partition with this number."""

    def _report(self, error: Exception) -> bool:
        """Whether an attempt failed for what was lost of these shuffles."""
        about = self._uses
        if isinstance(error, MrflightError) and error.partition is not None:
            about = self._read_with(error.partition)  # in others the same number is well
        return self._uses[0].run.losses.report(error, [produced.shuffle for produced in about])

    def _look(self) -> bool:
        """Look again; whether one had changed. Raises why that cannot be known any more."""
        self._uses[0].run.watch.check()
        before = self._versions
        self._versions = [produced.look().version for produced in self._uses]
        return self._versions != before


class MapRecovery(PlacementRecovery[T]):
    """Mends a stage that writes some of a shuffle's maps."""

    def __init__(self, produced: ShuffleOutput[T, Any], tasks: Sequence[T]) -> None:
        super().__init__([*produced.reads, produced])
        self._produced = produced
        self._maps = [task.map_id for task in tasks]

    def _read_with(self, partition: int) -> Sequence[AnyShuffleOutput]:
        return self._produced.reads

    def _anew(self, unfinished: Sequence[int], stop: Stop, *, is_told: bool) -> Resubmit[T]:
        """The tasks that are not done, as they write to what is not there any more, or read it.

        And those that are done, and whose rows are lost.
        """
        produced = self._produced
        stop(unfinished)
        for read in produced.reads:
            read.repair()
        produced.await_servers()
        produced.refresh()
        if lost := (health := produced.look()).lost_maps:
            produced.tell_of_losses(health)
        elif not is_told:
            produced.tell_of_changes(len(unfinished))
        places = {map_id: place for place, map_id in enumerate(self._maps)}
        anew = {*unfinished, *(places[map_id] for map_id in lost if map_id in places)}
        return {place: produced.tasks[self._maps[place]] for place in sorted(anew)}
