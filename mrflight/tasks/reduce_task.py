"""The task of a reduce: fetches partitions, reduces them, and writes part files."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from itertools import chain, groupby
from operator import attrgetter
from typing import NamedTuple

import msgspec
import pyarrow as pa

from mrflight.compute.schemas import empty_batch
from mrflight.sinks.parts.async_closer import AsyncCloser
from mrflight.sinks.parts.base import PartFile, PartWriter
from mrflight.storage.part_name import PartId
from mrflight.system.prefetch import prefetch
from mrflight.tasks.side_slice import SideSlice
from mrflight.tasks.stage_rows import SlicedSide, StagePartition, StageRows


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
