"""Runs a fragment of a query's plan over the partitions that it reads, and its own file groups."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pyarrow as pa

from mrflight.compute.layout import (
    decode_dictionaries,
    to_canonical,
    with_null_fields,
)
from mrflight.compute.schemas import empty_batch
from mrflight.compute.sql.engine import error_text, new_session
from mrflight.compute.sql.physical.protobuf import replaced
from mrflight.compute.sql.physical.scans import narrowed, reading
from mrflight.errors import JobFailedError, JobFileError, MrflightError
from mrflight.shuffle.client.reader import read_partition
from mrflight.sources.base import Reader, Split
from mrflight.sources.read_checks import verify_unchanged
from mrflight.storage import Location
from mrflight.storage.store import FileVersion
from mrflight.system.scratch import ScratchFolder
from mrflight.system.shared_payload import SharedPayload
from mrflight.tasks.broadcast_join import StreamReader
from mrflight.tasks.cogroup import Rows, SlicedTable
from mrflight.tasks.operators.spill_partitions import RowBuffer
from mrflight.tasks.operators.sql_reduce import HELD_FRACTION, POOL_FRACTION
from mrflight.tasks.task_memory import TaskMemory
from mrflight.units import format_bytes

if TYPE_CHECKING:
    from datafusion import SessionContext

_NO_MEMORY = ("Resources exhausted", "Not enough memory")


class Leaf(msgspec.Struct, frozen=True):
    """Rows that a fragment reads from a file, which its task writes."""

    name: str
    """The name of the table."""
    scan: bytes
    """The scan in the plan, of a file that is not there."""
    schema: pa.Schema
    """The columns of the file, which the rows have as well: c0, c1, ... of a fragment's rows."""


class ScannedFile(NamedTuple):
    """A file that DataFusion reads by itself, as it was when the query was planned."""

    location: Location
    version: FileVersion | None


class Fragment(SharedPayload, msgspec.Struct, frozen=True):
    """A part of DataFusion's plan of a query, as a co-group. Picklable.

    Its rows have columns c0, c1, ..., in plain types.
    """

    plan: bytes
    leaves: tuple[Leaf, ...]
    scans: tuple[bytes, ...]
    """The scans of which a task reads one file group; none if it reads them whole."""
    files: tuple[ScannedFile, ...]
    """The files that the plan reads by itself."""
    schema: pa.Schema
    options: Mapping[str, str]

    def check(self, schemas: Mapping[str, pa.Schema]) -> pa.Schema:
        """Return the schema of the result, which was found as the query was planned."""
        return self.schema

    def sliceable(self, schemas: Mapping[str, pa.Schema]) -> dict[str, bool]:
        """Return no table: it is not known which operators work row by row."""
        return {}

    def apply(
        self, tables: Mapping[str, Rows], task_memory: TaskMemory, sliced: SlicedTable | None = None
    ) -> Rows:
        """Return the rows that the plan makes of the partition's tables; see `CoGroup.apply`."""
        assert sliced is None, "no table of a fragment is sliced"
        return self.schema, self.run(tables, task_memory)

    def run(
        self, tables: Mapping[str, Rows], task_memory: TaskMemory, group: int | None = None
    ) -> Generator[pa.RecordBatch]:
        """Yield the rows, of one file ``group`` of its scans if these are divided.

        Raises JobFileError for values that the query cannot take, JobFailedError if memory does not
        suffice, and InputError if a file has changed since the query was planned.
        """
        from datafusion import ExecutionPlan

        with ExitStack() as stack:
            scratch = stack.enter_context(ScratchFolder("sql", task_memory.folder))
            plan = self.plan
            if group is not None:
                for scan in self.scans:
                    plan = replaced(plan, scan, narrowed(scan, group))
            for leaf in self.leaves:
                file = stack.enter_context(
                    LeafFile(leaf.schema, task_memory.memory_bytes // HELD_FRACTION, scratch)
                )
                file.write(tables[leaf.name][1])
                plan = replaced(plan, leaf.scan, reading(leaf.scan, file.path, file.size_bytes))
            for scanned in self.files:
                stack.enter_context(verify_unchanged(scanned.location, scanned.version))
            try:
                session = self._session(task_memory, scratch)
                node = ExecutionPlan.from_bytes(session, plan)
                for partition in range(node.partition_count):
                    for part in session.execute(node, partition):
                        batch = part.to_pyarrow()
                        if batch.num_rows:
                            yield self._named(batch)
            except (MrflightError, GeneratorExit):
                raise
            except Exception as error:  # DataFusion raises a bare Exception for all errors
                raise _translated(error, task_memory) from error

    def _named(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of the plan with the names and types that they are sent with."""
        if not batch.num_columns:
            columns = [pa.nulls(batch.num_rows, field.type) for field in self.schema]
            return pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return to_canonical(batch.rename_columns(self.schema.names), self.schema)

    def _session(self, task_memory: TaskMemory, scratch: ScratchFolder) -> SessionContext:
        from datafusion import RuntimeEnvBuilder

        runtime = RuntimeEnvBuilder().with_disk_manager_specified(str(scratch.path))
        pool = runtime.with_fair_spill_pool(task_memory.memory_bytes // POOL_FRACTION)
        return new_session(self.options, runtime=pool)


def _translated(error: Exception, task_memory: TaskMemory) -> Exception:
    words = error_text(error)
    if any(sign in words for sign in _NO_MEMORY):
        return JobFailedError(
            f"sql: a task of this query needs more than {format_bytes(task_memory.memory_bytes)}; "
            f"set more shuffle.partitions, or a larger cluster.memory ({words})"
        )
    return JobFileError(f"sql: {words}")


class LeafFile:
    """An Arrow IPC file for DataFusion: in memory, or in the task's folder if it is large."""

    def __init__(self, schema: pa.Schema, max_bytes: int, scratch: ScratchFolder) -> None:
        self._schema = schema
        self._max_bytes = max_bytes
        self._scratch = scratch
        self._file = -1
        self.path = ""
        self.size_bytes = 0

    def __enter__(self) -> LeafFile:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file >= 0:  # it is opened once the first rows have come
            os.close(self._file)

    def write(self, rows: Iterator[pa.RecordBatch]) -> None:
        """Write all rows."""
        held = RowBuffer()
        if held.fill(rows, self._max_bytes):
            self.path = str(self._scratch.path / f"{os.urandom(8).hex()}.arrow")
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        else:
            self._file = os.memfd_create("mrflight-sql", os.MFD_CLOEXEC)
            self.path = f"/proc/self/fd/{self._file}"
        with pa.OSFile(self.path, "wb") as file, pa.ipc.new_file(file, self._schema) as out:
            for batch in held.pop().to_batches():
                out.write_batch(self._as_planned(batch))
            for batch in rows:
                out.write_batch(self._as_planned(batch))
        self.size_bytes = os.fstat(self._file).st_size

    def _as_planned(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with the types that the plan has, such as views of strings."""
        batch = with_null_fields(decode_dictionaries(batch.select(self._schema.names)))
        columns = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(batch.columns, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


@dataclass
class FragmentReader(StreamReader):
    """Reads the rows that a fragment makes of a file group of its scans, with broadcast tables."""

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Yield the rows; without any, an empty batch."""
        with ExitStack() as stack:
            tables: dict[str, Rows] = {}
            for table in self.tables:
                side = table.side
                connections = stack.enter_context(side.shuffle.connections())
                (info,) = table.partition.infos
                tables[side.name] = side.schema, read_partition(side.shuffle.key, info, connections)
            assert isinstance(self.cogroup, Fragment)
            yield empty_batch(self.cogroup.schema)
            group = split.start if self.cogroup.scans else None
            with closing(self.cogroup.run(tables, self.task_memory, group)) as rows:
                yield from rows


@dataclass(frozen=True)
class FileGroups(Reader):
    """Stands for the files that the scans of a fragment read by themselves."""

    schema: pa.Schema | None = None

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        raise AssertionError("a fragment reads its files by itself")

    def divide(self, split: Split, count: int) -> list[Split]:
        """Return each file group as a split: they are as large as their query was planned for."""
        return split.divide(split.stop - split.start)
