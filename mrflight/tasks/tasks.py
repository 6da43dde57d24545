"""The tasks that workers run, with the inputs and the result of each.

A task runs in one worker process and may run again. Its output counts only once its attempt is
committed.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from itertools import chain, groupby
from operator import attrgetter
from typing import NamedTuple

import msgspec
import pyarrow as pa

from mrflight.compute.layout import canonical_schema, decode_dictionaries, to_canonical
from mrflight.compute.schemas import empty_batch
from mrflight.compute.sorting import check_sortable
from mrflight.config.sort_key import SortKey, columns_of
from mrflight.errors import AttemptSupersededError
from mrflight.shuffle.client.partitioners import OnePartitioner
from mrflight.shuffle.client.reader import read_slice
from mrflight.shuffle.client.shuffle import Shuffle
from mrflight.shuffle.client.writer import ShuffleWriter
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.partition_info import PartitionInfo
from mrflight.shuffle.wire.tickets import PartitionSlice
from mrflight.sinks.parts.async_closer import AsyncCloser
from mrflight.sinks.parts.base import PartFile, PartWriter
from mrflight.sources.bad_rows import BadRowPolicy
from mrflight.sources.base import Reader, Split
from mrflight.storage.part_name import PartId
from mrflight.system.prefetch import prefetch
from mrflight.tasks.bad_row_file import AttemptLog
from mrflight.tasks.mapper import Mapper, RowMap
from mrflight.tasks.operators.combiner import combine_partial_rows
from mrflight.tasks.partitioner import PartitionerSpec
from mrflight.tasks.reducer import ReduceSpec
from mrflight.tasks.side_slice import SideSlice
from mrflight.tasks.stage_rows import SlicedSide, StagePartition, StageRows


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


class SampleTask(msgspec.Struct, frozen=True):
    """Samples the keys of a small split, for the boundaries of a range partitioner."""

    reader: Reader
    split: Split
    row_map: RowMap | None
    sort_keys: tuple[SortKey, ...]
    rows: int

    @property
    def name(self) -> str:
        return f"sample of {self.split.place}"


class PartialAggregateTask(msgspec.Struct, frozen=True):
    """Aggregates a slice of a partition, and sends the result to the partition of another shuffle.

    The rows of the partition are partial aggregates. ``output`` is the other shuffle.
    """

    info: PartitionInfo
    partition_slice: PartitionSlice
    shuffle: Shuffle
    schema: pa.Schema
    reduce_spec: ReduceSpec
    output: Shuffle
    map_id: int
    """The map of ``output``: slices are in the order of the partition's rows."""
    limits: WriteLimits

    @property
    def name(self) -> str:
        return (
            f"partial aggregate of slice {self.partition_slice} of partition {self.info.partition}"
        )


class ReduceTask(msgspec.Struct, frozen=True):
    """Fetches and reduces some partitions, or a slice of one, and writes part files."""

    files: tuple[tuple[StagePartition, ...], ...]
    """For each part file, the partitions whose results it holds in this order."""
    side_slice: SideSlice | None
    """The slice, if the task processes only a part of its one partition."""
    rows: StageRows
    part_writer: PartWriter
    overlaps: bool
    """True if rows are fetched and reduced while earlier ones are encoded. If every core has a task
    of its own, the two threads only take turns, which costs a tenth of the time."""

    @property
    def name(self) -> str:
        numbers = [info.partition for file in self.files for info in file]
        if len(numbers) == 1:
            part = f"{self.side_slice} of " if self.side_slice else ""
            return f"reduce of {part}partition {numbers[0]}"
        return f"reduce of partitions {numbers[0]} to {numbers[-1]}"


class ReduceResult(msgspec.Struct, frozen=True):
    """The part files that a reduce attempt wrote."""

    rows_out: int
    schema: pa.Schema
    """The schema of the rows; without rows, the schema of the empty result."""
    parts: tuple[PartFile, ...]
    slice_rows: int = 0
    """The rows that were read of a slice."""


def run_map(task: MapTask, attempt: int, shuffle: Shuffle, writer_id: str) -> MapResult:
    """Run one attempt of a map.

    When this returns, the rows of this attempt or of a speculative one are committed.
    """
    with AttemptLog(task.bad_rows, task.map_id, attempt, shuffle.id) as bad_rows:
        return _run_map(task, attempt, shuffle, writer_id, bad_rows)


def _run_map(
    task: MapTask, attempt: int, shuffle: Shuffle, writer_id: str, bad_rows: AttemptLog
) -> MapResult:
    combiner = task.reduce_spec.combiner(task.limits.combiner_bytes)
    user_sees_rows = task.row_map is not None or task.partitioner.function is not None
    is_sent_as_read = combiner is None and not user_sees_rows
    reader = task.reader.with_bad_rows(bad_rows)
    mapper = Mapper(reader, task.split, task.row_map, encoded=is_sent_as_read)
    writer = shuffle.writer(
        task.map_id,
        attempt,
        partitioner=task.partitioner.partitioner(task.map_id),
        compression=task.limits.compression,
        buffer_bytes=task.limits.writer_bytes,
        writer_id=writer_id,
    )
    batches = _check_first_batch(task, mapper.batches())
    filled = _Filled(batches) if reader.schema is None else None
    if filled is not None:
        batches = filled.batches()
    if combiner is not None:
        batches = combiner(batches)
    rows_out = shuffle_batches(bad_rows.finish_after(batches), writer)
    unsent = filled.unsent_schema if filled is not None else None
    return MapResult(
        mapper.rows_in,
        reader.file_rows(mapper.rows_in),
        rows_out,
        reader.slice_rows(),
        unsent,
        bad_rows.rows,
        bad_rows.file,
    )


def run_sample(task: SampleTask) -> pa.Table:
    """Return the keys of at most ``task.rows`` rows of one batch, as columns "0", "1", ..."""
    batches = Mapper(task.reader, task.split, task.row_map).batches()
    batch = next(batches)
    while not batch.num_rows and (other := next(batches, None)) is not None:
        batch = other
    check_sortable(batch.schema, task.sort_keys)
    keys = batch.select(columns_of(task.sort_keys))
    plain = to_canonical(keys, canonical_schema(keys.schema))
    step = max(1, -(-plain.num_rows // task.rows))
    sampled = plain.take(pa.array(range(0, plain.num_rows, step), pa.int64()))
    return pa.Table.from_batches([sampled]).rename_columns(
        [str(i) for i in range(keys.num_columns)]
    )


def run_partial_aggregate(task: PartialAggregateTask, attempt: int, writer_id: str) -> int:
    """Run one attempt of a partial aggregate, and return the number of rows that it read.

    When this returns, the rows that it sent are committed.
    """
    plan = task.reduce_spec.partials(task.schema)
    assert plan is not None, "the driver slices partial rows only"
    writer = task.output.writer(
        task.map_id,
        attempt,
        partitioner=OnePartitioner(task.info.partition, task.output.partitions),
        compression=task.limits.compression,
        buffer_bytes=task.limits.writer_bytes,
        writer_id=writer_id,
    )
    rows_in = 0

    def count_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        nonlocal rows_in
        for batch in batches:
            rows_in += batch.num_rows
            yield batch

    with Connections(task.shuffle.timeouts) as connections:
        sent = read_slice(task.shuffle.id, task.info, task.partition_slice, connections)
        rows = count_rows(map(decode_dictionaries, sent))
        shuffle_batches(combine_partial_rows(plan, rows, task.limits.combiner_bytes), writer)
    return rows_in


def run_reduce(task: ReduceTask, attempt: int) -> ReduceResult:
    """Run one attempt of a reduce. Its part files count once the driver commits them."""
    parts: list[PartFile] = []
    schema = task.rows.sides[0].schema
    sliced = SlicedSide(task.side_slice) if task.side_slice else None
    reduced = _reduce(task, sliced)
    with (
        closing(prefetch(reduced) if task.overlaps else reduced) as results,
        AsyncCloser(task.part_writer.max_closing_files) as closer,
    ):
        for file, of_file in groupby(results, attrgetter("file")):
            first: _Result = next(of_file)
            filled = (each.batch for each in chain([first], of_file) if each.batch.num_rows)
            head = next(filled, None)
            if head is None:  # a function's result for no rows may have other types
                schema = schema if parts else first.batch.schema
                continue
            schema = head.schema
            rows = chain([head], filled)
            number = task.side_slice.number if task.side_slice else None
            part = PartId(task.files[file][0].partition, attempt, number)
            parts += task.part_writer.write(part, schema, rows, closer)
    rows_out = sum(part.rows for part in parts if not part.is_key_file)
    return ReduceResult(rows_out, schema, tuple(parts), sliced.rows_read if sliced else 0)


class _Result(NamedTuple):
    """Rows of one of the task's part files."""

    file: int
    batch: pa.RecordBatch


def _reduce(task: ReduceTask, sliced: SlicedSide | None) -> Generator[_Result]:
    """Yield the results of all partitions in the order of the files.

    Each partition gives at least a batch without rows.
    """
    partitions = [partition for file in task.files for partition in file]
    numbers = (number for number, file in enumerate(task.files) for _ in file)
    with closing(task.rows.read(partitions, sliced)) as results:
        for number, (schema, batches) in zip(numbers, results, strict=True):
            yield _Result(number, empty_batch(schema))
            for batch in batches:
                yield _Result(number, batch)


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
            task.partitioner.check(batch.schema)
            task.reduce_spec.check(batch.schema)
        yield batch


def shuffle_batches(batches: Iterable[pa.RecordBatch], writer: ShuffleWriter) -> int:
    """Write all batches, commit the attempt, and return the number of rows.

    If the batches raise an exception, the attempt is not committed. If another attempt has been
    committed in the meantime, this returns normally, because the rows of both are the same.
    """
    rows = 0
    is_complete = False
    try:
        with writer as out:
            for batch in batches:
                out.write(batch)
                rows += batch.num_rows
            is_complete = True
    except AttemptSupersededError:
        if not is_complete:
            raise
    return rows
