"""Reads the result of a job for its caller, and recovers rows that are lost meanwhile."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing

import pyarrow as pa

from mrflight.compute.layout import decode_dictionaries
from mrflight.compute.schemas import empty_batch
from mrflight.errors import (
    DeadlineExceededError,
    InconsistentMapOutputError,
    JobFailedError,
    MrflightError,
    PlacementChangedError,
)
from mrflight.scheduler.attempts import MAX_TASK_FAILURES, is_retryable
from mrflight.scheduler.recovery.writers import AnyShuffleOutput
from mrflight.shuffle.client.reader import read_partitions
from mrflight.shuffle.client.shuffle import Shuffle
from mrflight.shuffle.wire.partition_info import PartitionInfo
from mrflight.system.deadlines import Deadline
from mrflight.system.prefetch import Prefetched
from mrflight.system.progress import Work
from mrflight.units import format_count

_UNREAD = "the result not read to its end"


class RowsReader:
    """Reads the partitions of a shuffle, one after the other, in the process of the caller.

    Another thread reads ahead by a few blocks, so that an interrupt, the job's deadline or the loss
    of a server are noticed while a server does not answer. If rows are lost, the maps that wrote
    them run again, and reading goes on after the last row that was yielded: a map that runs again
    has the same rows in the same order, or the metadata server refuses it.
    """

    def __init__(self, output: AnyShuffleOutput, deadline: Deadline) -> None:
        self._output = output
        self._progress = output.run.runner.events.driver
        self._deadline = deadline
        self._infos: list[PartitionInfo] = []
        self._partition = 0
        """The position of the partition that is read."""
        self._given = 0
        """The rows of it that were yielded."""
        self._failures = 0
        """The failures since rows were last yielded."""

    def batches(self) -> Generator[pa.RecordBatch]:
        """Yield the rows; without any, an empty batch that has their schema.

        Raises InconsistentMapOutputError if the stages have to run again, which is only possible
        before rows were yielded, and JobFailedError if they would have to afterwards.
        """
        schema, self._infos = self._output.layout()
        rows = sum(info.rows for info in self._infos)
        self._progress.begin_rows(rows)
        if not rows:
            yield empty_batch(schema)
        while self._partition < len(self._infos):
            try:
                yield from self._rest()
            except MrflightError as error:
                self._recover(error)
        self._progress.end(f"{format_count(rows, 'row')} read")

    def _rest(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows from the position on."""
        rows = _read(self._output.clamped, self._infos[self._partition :], self._given)
        with closing(Prefetched(rows)) as ahead:
            first = self._partition
            while (item := ahead.next(self._check)) is not None:
                self._deadline.check(_UNREAD)
                number, batch = item
                if first + number > self._partition:
                    self._partition, self._given = first + number, 0
                self._given += batch.num_rows
                self._failures = 0
                self._progress.advance(Work(batch.num_rows, batch.nbytes), batch.num_rows)
                yield batch
        self._partition = len(self._infos)

    def _check(self) -> None:
        """Raise if there is no use in waiting for the next rows any longer."""
        self._deadline.check(_UNREAD)
        if self._output.has_changed(self._output.version):
            raise PlacementChangedError("a data server of the result was lost")

    def _recover(self, error: MrflightError) -> None:
        """Make the rows whole again, and find out where they are. Raises ``error`` if it cannot."""
        self._deadline.check(_UNREAD)
        is_slow_caller = isinstance(error, DeadlineExceededError) and self._failures == 0
        self._failures += 1
        output = self._output
        if not is_slow_caller:  # whose stream has ended by its timeout, although nothing is wrong
            is_lost = output.run.failures.report(error, [output.shuffle])
            if not is_lost and (self._failures >= MAX_TASK_FAILURES or not is_retryable(error)):
                raise error
        output.run.runner.events.notice_recovery(
            "output_lost", "the rest of the result is read again", "the result", error
        )
        try:
            output.run.shuffles.monitor.check()
            output.repair()
            infos = output.layout()[1]
            self._check_same(infos)
        except InconsistentMapOutputError as inconsistent:
            if not self._partition and not self._given:
                raise
            raise JobFailedError(
                "the rows that were not read yet were lost with a data server, and cannot be made "
                f"again as they were: {inconsistent}; run the job again, or let shuffle.replicas "
                "keep them on several servers"
            ) from inconsistent
        self._infos = infos

    def _check_same(self, infos: Sequence[PartitionInfo]) -> None:
        """Check that the partitions have as many rows as before."""
        if [info.rows for info in infos] != [info.rows for info in self._infos]:
            raise InconsistentMapOutputError("the maps that ran again wrote other rows")


def _read(
    shuffle: Shuffle, infos: Sequence[PartitionInfo], skipped: int
) -> Generator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of partitions, each batch with the position of its partition.

    Of the first partition, leave out the rows that were ``skipped``.
    """
    with shuffle.connections() as connections:
        for number, rows in enumerate(read_partitions(shuffle.key, infos, connections)):
            for batch in rows_after(skipped, rows) if number == 0 else rows:
                yield number, decode_dictionaries(batch)


def rows_after(skipped: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield what follows the first ``skipped`` rows, in no empty batches."""
    for batch in batches:
        left = batch.slice(min(skipped, batch.num_rows))
        skipped -= batch.num_rows - left.num_rows
        if left.num_rows:
            yield left
