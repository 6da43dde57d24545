"""The task of a reduce: fetches partitions, reduces them, and writes part files."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing

import msgspec
from msgspec.structs import replace

from mrflight.compute.schemas import empty_batch
from mrflight.events.attempt_counts import COUNTS
from mrflight.sinks.parts.base import PartWriter
from mrflight.storage.part_name import PartId
from mrflight.system.prefetch import prefetch
from mrflight.tasks.part_files import FileRows, ReduceResult, write_parts
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


def run_reduce(task: ReduceTask, attempt: int) -> ReduceResult:
    """Run one attempt of a reduce. Its part files count once the driver commits them."""
    sliced = SlicedSide(task.side_slice) if task.side_slice else None
    number = task.side_slice.number if task.side_slice else None
    names = [PartId(file[0].partition, attempt, number) for file in task.files]
    reduced = _reduce(task, sliced)
    result = write_parts(task.part_writer, names, prefetch(reduced) if task.overlaps else reduced)
    return replace(
        result,
        slice_rows=sliced.rows_read if sliced else 0,
        file_rows=COUNTS.scanned_rows,
        shared_rows=COUNTS.shared_rows,
    )


def _reduce(task: ReduceTask, sliced: SlicedSide | None) -> Generator[FileRows]:
    """Yield the results of all partitions in the order of the files.

    Each partition gives at least a batch without rows.
    """
    partitions = [partition for file in task.files for partition in file]
    numbers = (number for number, file in enumerate(task.files) for _ in file)
    with closing(task.rows.read(partitions, sliced)) as results:
        for number, (schema, batches) in zip(numbers, results, strict=True):
            yield FileRows(number, empty_batch(schema))
            for batch in batches:
                yield FileRows(number, batch)
