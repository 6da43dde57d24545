"""The task of a map, and the rows that it reads and maps."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from mrflight.events.attempt_counts import COUNTS
from mrflight.sources.bad_rows import BadRow, BadRowPolicy
from mrflight.sources.base import Reader, Split
from mrflight.tasks.bad_row_file import AttemptLog
from mrflight.tasks.mapper import Mapper, RowMap
from mrflight.tasks.operators.aggregates import MAPPED_ROW
from mrflight.tasks.partitioner import PartitionerSpec
from mrflight.tasks.reducer import ReduceSpec
from mrflight.tasks.runtime_filter import KeyFilter, NotedKeys, RuntimeFilter


class WriteLimits(msgspec.Struct, frozen=True):
    """The compression of the blocks that a map task sends, and the limits of its buffers."""

    compression: str
    writer_bytes: int
    """The bytes of rows that the shuffle writer holds."""
    combiner_bytes: int
    """The bytes of rows and groups that the combiner holds."""


class MapTask(msgspec.Struct, frozen=True):
    """Reads one split of one input, maps its rows, and sends them to their partitions."""

    input_name: str
    map_id: int
    reader: Reader
    split: Split
    row_map: RowMap | None
    partitioner: PartitionerSpec
    reduce_spec: ReduceSpec
    """The reduce of the rows. The map checks it against its first batch, and its combiner starts
    it."""
    limits: WriteLimits
    bad_rows: BadRowPolicy | None = None
    """What the map does with rows that cannot be read; None if they are errors."""
    runtime_filter: RuntimeFilter | None = None
    """Set if rows are sent only with some keys, or if the maps of another side will do so."""

    def tests(self, keys: KeyFilter) -> MapTask:
        """Return the task, which sends only rows with these keys."""
        assert self.runtime_filter is not None, self
        runtime_filter = replace(self.runtime_filter, tested=keys)
        reader = self.reader.within(runtime_filter.bounds(keys))
        return replace(self, runtime_filter=runtime_filter, reader=reader)

    @property
    def name(self) -> str:
        return f"map {self.map_id} ({self.input_name}, {self.split.place})"


class MapResult(msgspec.Struct, frozen=True):
    """The numbers of rows that a committed map attempt read and wrote."""

    rows_in: int
    file_rows: int
    """The rows that were read from files, to produce ``rows_in``."""
    rows_out: int
    slice_rows: int | None
    """The rows that were read of a slice of an earlier stage's partition; None if it was not read
    to its end."""
    unsent_schema: pa.Schema | None = None
    """The schema of a map without rows that did not send it: see `_Filled`."""
    bad_rows: int = 0
    """The rows that were skipped because they cannot be read."""
    bad_rows_file: str | None = None
    """The name of the file to which they were written."""
    keys: KeyFilter | None = None
    """The keys of the rows that were sent, if a runtime filter notes them."""
    shared_rows: int = 0
    """The rows that were read of files that all maps of the stage read."""
    input_bytes: int = 0
    """The bytes of the events that were read of a stream."""
    kept_bad_rows: tuple[BadRow, ...] = ()
    """The bad rows themselves, if the driver is to have them."""


class MappedRows:
    """The rows of one attempt of a map: read, mapped, checked, and combined where that helps."""

    def __init__(self, task: MapTask, bad_rows: AttemptLog) -> None:
        self._task = task
        self._bad_rows = bad_rows
        self._combiner = task.reduce_spec.combiner(task.limits.combiner_bytes)
        user_sees_rows = task.row_map is not None or task.partitioner.function is not None
        is_sent_as_read = self._combiner is None and not user_sees_rows
        self._reader = task.reader.with_bad_rows(bad_rows)
        self._mapper = Mapper(self._reader, task.split, task.row_map, encoded=is_sent_as_read)
        self._filled: _Filled | None = None
        filter_ = task.runtime_filter
        self._noted = NotedKeys(filter_.noted_bits) if filter_ is not None else None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return the batches; of a function's result, only those that have rows."""
        batches = _check_first_batch(self._task, self._mapper.batches())
        if self._reader.schema is None:
            self._filled = _Filled(batches)
            batches = self._filled.batches()
        if self._combiner is not None:
            batches = self._combiner(batches)
        if self._task.runtime_filter is not None and self._noted is not None:
            batches = self._task.runtime_filter.keep(batches, self._noted)
        return self._bad_rows.finish_after(batches)

    @property
    def unsent_schema(self) -> pa.Schema | None:
        """See `MapResult`; known once the batches have been read."""
        return self._filled.unsent_schema if self._filled is not None else None

    def result(self, rows_out: int) -> MapResult:
        """Return the counts, once the batches have been read; ``rows_out`` is that of them."""
        rows_in = self._mapper.rows_in
        return MapResult(
            rows_in,
            self._reader.file_rows(rows_in) + COUNTS.scanned_rows,
            rows_out,
            self._reader.slice_rows(),
            self.unsent_schema,
            self._bad_rows.rows,
            self._bad_rows.file,
            self._noted.filter() if self._noted is not None else None,
            COUNTS.shared_rows,
            COUNTS.input_bytes,
            tuple(self._bad_rows.kept),
        )


class _Filled:
    """The batches with rows of a function's results, whose types for no rows may be others.

    Many functions infer types from values. So a map without rows sends no schema, which those of
    other maps would have to agree with. It counts if no map has rows.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self.unsent_schema: pa.Schema | None = None
        """The schema of the first batch, if no batch has rows."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches that have rows."""
        has_rows = False
        for batch in self._batches:
            if batch.num_rows:
                has_rows = True
                yield batch
            elif self.unsent_schema is None:
                self.unsent_schema = batch.schema
        if has_rows:
            self.unsent_schema = None


def _check_first_batch(
    task: MapTask, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the batches, and check the first one, so that an unknown column fails early."""
    for i, batch in enumerate(batches):
        if i == 0:
            # The reduce first: if the key is that of its groups, its message says so.
            task.reduce_spec.check(batch.schema)
            task.partitioner.check(batch.schema, f"inputs.{task.input_name}.key: {MAPPED_ROW}")
        yield batch
