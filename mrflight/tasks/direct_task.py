"""Runs a map and the reduce of its rows in one task, which writes part files.

Nothing goes through a shuffle, so that such a job needs no servers. It has one map and one
partition, or its maps are all that it does.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import chain

import msgspec
import pyarrow as pa

from mrflight.compute.layout import canonical_schema, to_canonical
from mrflight.compute.schemas import describe_difference, empty_batch
from mrflight.errors import SchemaMismatchError
from mrflight.sinks.parts.base import PartWriter
from mrflight.storage.part_name import PartId
from mrflight.system.prefetch import prefetch
from mrflight.tasks.bad_row_file import AttemptLog
from mrflight.tasks.cogroup import Rows
from mrflight.tasks.map_task import MappedRows, MapResult, MapTask
from mrflight.tasks.part_files import FileRows, ReduceResult, write_parts
from mrflight.tasks.task_memory import TaskMemory

_SLICE_ROWS = 2**18
"""Rows that are brought into the canonical layout at a time, because a dictionary's values are
larger than they look."""


class DirectTask(msgspec.Struct, frozen=True):
    """Maps a split, reduces its rows, and writes part files.

    These are the rows that the map would send through a shuffle of one partition, which has the
    number of the map.
    """

    job_id: str
    map: MapTask
    task_memory: TaskMemory
    part_writer: PartWriter
    overlaps: bool
    """See `ReduceTask`."""

    @property
    def name(self) -> str:
        return self.map.name


class DirectResult(msgspec.Struct, frozen=True):
    """What an attempt read, and the part files that it wrote."""

    map: MapResult
    reduce: ReduceResult


def run_direct(task: DirectTask, attempt: int) -> DirectResult:
    """Run one attempt of the task. Its part files count once the driver commits them."""
    with AttemptLog(task.map.bad_rows, task.map.map_id, attempt, task.job_id) as bad_rows:
        mapped = _CanonicalRows(MappedRows(task.map, bad_rows))
        results = _reduced(task, mapped)
        reduced = write_parts(
            task.part_writer,
            [PartId(task.map.map_id, attempt)],
            prefetch(results) if task.overlaps else results,
        )
        return DirectResult(mapped.result(), reduced)


def _reduced(task: DirectTask, mapped: _CanonicalRows) -> Generator[FileRows]:
    """Yield the result of all rows that were mapped, and first a batch without rows."""
    schema, batches = mapped.rows()
    schema, results = task.map.reduce_spec.apply(task.map.map_id, schema, batches, task.task_memory)
    yield FileRows(0, empty_batch(schema))
    for batch in results:
        yield FileRows(0, batch)
    for _ in batches:  # a reduce may need only the first rows, and the map's are all counted
        pass


class _CanonicalRows:
    """The rows of a map in the layout in which a shuffle passes them on."""

    def __init__(self, mapped: MappedRows) -> None:
        self._mapped = mapped
        self._count = 0

    def rows(self) -> Rows:
        """Return the rows; raises SchemaMismatchError, as they are read, if batches differ."""
        batches = self._mapped.batches()
        first = next(batches, None)
        if first is not None:
            schema = canonical_schema(first.schema)
            return schema, self._to_canonical(schema, chain([first], batches))
        unsent = self._mapped.unsent_schema
        return canonical_schema(unsent if unsent is not None else pa.schema([])), iter(())

    def result(self) -> MapResult:
        """Return the counts of the map, once its rows have been read."""
        return self._mapped.result(self._count)

    def _to_canonical(
        self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if difference := describe_difference(schema, canonical_schema(batch.schema)):
                raise SchemaMismatchError(
                    f"map 0: a batch does not agree with those before it: {difference}"
                )
            self._count += batch.num_rows
            for start in range(0, batch.num_rows, _SLICE_ROWS):
                yield to_canonical(batch.slice(start, _SLICE_ROWS), schema)
