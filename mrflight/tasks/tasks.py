"""The tasks that workers run: what each needs, and what it answers.

A task runs whole in one worker process and may be run again: what it leaves
behind counts only once its attempt is committed.
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
from mrflight.sinks.base import PartFile, PartWriter
from mrflight.sinks.parts.async_closer import Closings
from mrflight.sources.base import Reader, Split
from mrflight.system.prefetch import prefetch
from mrflight.tasks.mapper import Mapper, RowMap
from mrflight.tasks.operators.combiner import combine_partial_rows
from mrflight.tasks.partitioner import PartitionerSpec
from mrflight.tasks.reducer import ReduceSpec
from mrflight.tasks.side_slice import Portion
from mrflight.tasks.stage_rows import SharedSide, StagePartition, StageRows


class MapTask(msgspec.Struct, frozen=True):
    """One split of one input: read, mapped, and sent to its partitions."""

    input_name: str
    map_id: int
    reader: Reader
    split: Split
    row_map: RowMap | None
    partitioner: PartitionerSpec
    reduce_spec: ReduceSpec
    """What will be made of the rows: checked against the first of them, and begun with here."""
    compression: str
    writer_bytes: int
    """What the shuffle writer holds."""
    combiner_bytes: int

    @property
    def name(self) -> str:
        return f"map {self.map_id} ({self.input_name}, {self.split.path} from {self.split.start})"


class MapResult(msgspec.Struct, frozen=True):
    """What a committed map attempt read and wrote."""

    rows_in: int
    file_rows: int
    """Of these, or of those that these were made of, how many were read from files."""
    rows_out: int
    share_rows: int | None
    """That were read of a share of an earlier stage's partition; None where some were left."""


class SampleTask(msgspec.Struct, frozen=True):
    """A small split whose keys are sampled, for the boundaries of a range partitioner."""

    reader: Reader
    split: Split
    row_map: RowMap | None
    sort_keys: tuple[SortKey, ...]
    rows: int

    @property
    def name(self) -> str:
        return f"sample of {self.split.path} from {self.split.start}"


class PartialAggregateTask(msgspec.Struct, frozen=True):
    """A share of a partition of partial rows: merged, and sent to that partition of ``merged``."""

    info: PartitionInfo
    share: PartitionSlice
    shuffle: Shuffle
    schema: pa.Schema
    reduce_spec: ReduceSpec
    merged: Shuffle
    map_id: int
    """In ``merged``: shares in the order of the partition's rows."""
    compression: str
    writer_bytes: int
    combiner_bytes: int

    @property
    def name(self) -> str:
        return f"merge of share {self.share} of partition {self.info.partition}"


class ReduceTask(msgspec.Struct, frozen=True):
    """Some partitions, or a portion of one: fetched and reduced, and written as part files."""

    files: tuple[tuple[StagePartition, ...], ...]
    """Of each part file the partitions whose results it holds, one after the other."""
    portion: Portion | None
    """Of the one partition."""
    rows: StageRows
    part_writer: PartWriter
    overlaps: bool
    """Whether the next rows are fetched and reduced while those before are encoded. Where every
    core has a task of its own, the two would only take turns, at a tenth of the time."""

    @property
    def name(self) -> str:
        numbers = [info.partition for file in self.files for info in file]
        if len(numbers) == 1:
            portion = f"{self.portion} of " if self.portion else ""
            return f"reduce of {portion}partition {numbers[0]}"
        return f"reduce of partitions {numbers[0]} to {numbers[-1]}"


class ReduceResult(msgspec.Struct, frozen=True):
    """What a reduce attempt wrote."""

    rows_out: int
    schema: pa.Schema
    """Of rows that it wrote; where it wrote none, of what it made of none."""
    parts: tuple[PartFile, ...]
    share_rows: int = 0
    """That were read of a share."""


def run_map(task: MapTask, attempt: int, shuffle: Shuffle, writer_id: str) -> MapResult:
    """Run one attempt of a map; its rows, or those of a twin, are committed when this returns."""
    combiner = task.reduce_spec.combiner(task.combiner_bytes)
    user_sees_rows = task.row_map is not None or task.partitioner.function is not None
    is_sent_as_read = combiner is None and not user_sees_rows
    mapper = Mapper(task.reader, task.split, task.row_map, encoded=is_sent_as_read)
    writer = shuffle.writer(
        task.map_id,
        attempt,
        partitioner=task.partitioner.partitioner(task.map_id),
        compression=task.compression,
        buffer_bytes=task.writer_bytes,
        writer_id=writer_id,
    )
    batches = _checked(task, mapper.batches())
    if combiner is not None:
        batches = combiner.combine(batches)
    rows_out = shuffle_batches(batches, writer)
    file_rows = task.reader.file_rows(mapper.rows_in)
    return MapResult(mapper.rows_in, file_rows, rows_out, task.reader.share_rows())


def run_sample(task: SampleTask) -> pa.Table:
    """Keys of at most ``task.rows`` rows of one batch of the split, as columns "0", "1", ..."""
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
    """Run one attempt of a merge; the rows that it read. Those it sent are committed then."""
    plan = task.reduce_spec.partials(task.schema)
    assert plan is not None, "the driver shares out partial rows only"
    writer = task.merged.writer(
        task.map_id,
        attempt,
        partitioner=OnePartitioner(task.info.partition, task.merged.partitions),
        compression=task.compression,
        buffer_bytes=task.writer_bytes,
        writer_id=writer_id,
    )
    rows_in = 0

    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        nonlocal rows_in
        for batch in batches:
            rows_in += batch.num_rows
            yield batch

    with Connections(task.shuffle.timeouts) as connections:
        sent = read_slice(task.shuffle.id, task.info, task.share, connections)
        rows = counted(map(decode_dictionaries, sent))
        shuffle_batches(combine_partial_rows(plan, rows, task.combiner_bytes), writer)
    return rows_in


def run_reduce(task: ReduceTask, attempt: int) -> ReduceResult:
    """Run one attempt of a reduce; its part files count once the driver commits them."""
    parts: list[PartFile] = []
    schema = task.rows.sides[0].schema
    shared = SharedSide(task.portion) if task.portion else None
    reduced = _reduced(task, shared)
    with (
        closing(prefetch(reduced) if task.overlaps else reduced) as results,
        Closings(task.part_writer.closing_files) as closings,
    ):
        for file, of_file in groupby(results, attrgetter("file")):
            first: _Result = next(of_file)
            filled = (each.batch for each in chain([first], of_file) if each.batch.num_rows)
            head = next(filled, None)
            if head is None:  # what a function makes of no rows says nothing of others' types
                schema = schema if parts else first.batch.schema
                continue
            schema = head.schema
            rows = chain([head], filled)
            partition = task.files[file][0].partition
            number = task.portion.number if task.portion else None
            parts += task.part_writer.write(partition, attempt, schema, rows, number, closings)
    rows_out = sum(part.rows for part in parts if not part.is_key_file)
    return ReduceResult(rows_out, schema, tuple(parts), shared.rows_read if shared else 0)


class _Result(NamedTuple):
    """Rows for one of a task's part files."""

    file: int
    batch: pa.RecordBatch


def _reduced(task: ReduceTask, shared: SharedSide | None) -> Generator[_Result]:
    """The results of all partitions, file after file: of each at least a batch without rows."""
    partitions = [partition for file in task.files for partition in file]
    numbers = (number for number, file in enumerate(task.files) for _ in file)
    with closing(task.rows.of(partitions, shared)) as results:
        for number, (schema, batches) in zip(numbers, results, strict=True):
            yield _Result(number, empty_batch(schema))
            for batch in batches:
                yield _Result(number, batch)


def _checked(task: MapTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Check the first batch against what is to come, so that a wrong name fails early."""
    for i, batch in enumerate(batches):
        if i == 0:
            task.partitioner.check(batch.schema)
            task.reduce_spec.check(batch.schema)
        yield batch


def shuffle_batches(batches: Iterable[pa.RecordBatch], writer: ShuffleWriter) -> int:
    """Write all batches and commit the attempt; the number of rows that were sent.

    Whatever the batches raise ends the attempt uncommitted. Where another attempt was committed
    meanwhile, its rows are the same, and that is as good.
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
