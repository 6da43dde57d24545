"""Files of rows that DataFusion reads in place of a part of its plan."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa

from mrflight.compute.layout import (
    canonical_schema,
    decode_dictionaries,
    to_canonical,
    with_null_fields,
)
from mrflight.compute.value_ranges import ScanBounds, value_range
from mrflight.system.scratch import ScratchFolder
from mrflight.tasks.operators.spill_partitions import translate_disk_errors


class LeafBound(NamedTuple):
    """A column of a leaf whose values are all that a join needs of a column of a scan."""

    leaf_column: str
    scan: int
    """The position of the scan among those of the fragment."""
    scan_column: bytes


class Leaf(msgspec.Struct, frozen=True):
    """Rows that a fragment reads from a file, which its task writes."""

    name: str
    """The name of the table."""
    scan: bytes
    """The scan in the plan, of a file that is not there."""
    schema: pa.Schema
    """The columns of the file, which the rows have as well: c0, c1, ... of a fragment's rows."""
    keys: tuple[str, ...] | None = None
    """The columns by whose hash the rows are distributed to the tasks; none if any task may have
    any row. None if every task has all rows, or there is one task."""
    is_held: bool = False
    """True if an operator holds all of the rows in memory, as a join does with its left side."""
    is_sliceable: bool = False
    """True if tasks can read a slice of the rows each, with all rows of the other leaves."""
    bounds: tuple[LeafBound, ...] = ()


class LeafFile:
    """An Arrow IPC file with the rows of a leaf, in memory or in the task's folder."""

    def __init__(self, leaf: Leaf, scratch: ScratchFolder) -> None:
        self.leaf = leaf
        self.bytes = 0
        """The bytes of the rows in it."""
        self._scratch = scratch
        self._path = ""
        self._memory = -1
        self._is_on_disk = False
        self._writing = ExitStack()
        self._writer: pa.ipc.RecordBatchFileWriter | None = None

    def __enter__(self) -> LeafFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._writing.close()
        self._forget_memory()
        if self._is_on_disk:
            Path(self._path).unlink()

    def fill(self, rows: Iterator[pa.RecordBatch], max_bytes: float) -> bool:
        """Write rows until these have more than ``max_bytes``. Return False if they end before."""
        if not self._path:
            self._memory = os.memfd_create("mrflight-sql", os.MFD_CLOEXEC)
            self._open(f"/proc/self/fd/{self._memory}")
        assert self._writer is not None, "a finished file is only read"
        with translate_disk_errors(self._scratch.root):
            for batch in map(self._as_planned, rows):
                self._writer.write_batch(batch)
                self.bytes += batch.nbytes
                if self.bytes > max_bytes:
                    return True
        return False

    def write(self, rows: Iterator[pa.RecordBatch], memory_bytes: int) -> None:
        """Write all rows: to a file on the disk if they have more than ``memory_bytes``."""
        if not self.fill(rows, memory_bytes):
            return
        held = self.batches()
        first = next(held)
        self.bytes = 0
        with translate_disk_errors(self._scratch.root):
            self._open(str(self._scratch.path / f"{os.urandom(8).hex()}.arrow"))
        self._is_on_disk = True
        self.fill(chain([first], held), float("inf"))
        self._forget_memory()
        self.fill(rows, float("inf"))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that were written, with the types that they came with."""
        path, _ = self.finish()
        wire = canonical_schema(self.leaf.schema)
        with pa.memory_map(path) as source, pa.ipc.open_file(source) as file:
            for number in range(file.num_record_batches):
                yield to_canonical(file.get_batch(number), wire)

    def scan_bounds(self) -> Iterator[ScanBounds]:
        """Yield the bounds of scans by the values of this leaf's rows, all of which are written."""
        for column, scan, scan_column in self.leaf.bounds:
            low, high = value_range(batch[column] for batch in self.batches())
            if low is not None and high is not None:
                yield ScanBounds(scan, scan_column, low, high)

    def finish(self) -> tuple[str, int]:
        """Return where the file is, and its size, for a scan of it."""
        if not self._path:
            self.fill(iter(()), 0)
        self._writing.close()
        self._writer = None
        return self._path, os.stat(self._path).st_size

    def _as_planned(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with the types that the plan has, such as views of strings."""
        schema = self.leaf.schema
        batch = with_null_fields(decode_dictionaries(batch.select(schema.names)))
        columns = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(batch.columns, schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _open(self, path: str) -> None:
        self._path = path
        file = self._writing.enter_context(pa.OSFile(path, "wb"))
        stream = pa.ipc.new_file(file, self.leaf.schema)
        self._writer = self._writing.enter_context(stream)

    def _forget_memory(self) -> None:
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1
