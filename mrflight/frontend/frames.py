"""Makes inputs of rows in this process: tables of any library, queries of DuckDB, and streams.

What is no table of a library that `mrflight.config.frames` knows is recognised by Arrow's stream
interface, the method ``__arrow_c_stream__``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa

from mrflight.config.frames import to_arrow
from mrflight.config.input_frame import InputFrame
from mrflight.errors import InputError, JobFileError
from mrflight.units import format_bytes

_MAX_LOOK_BYTES = 64 << 20
"""How much of a stream is held for `InputFrame.look`, so that a job still gets it."""


def frame_of(rows: Any) -> InputFrame | None:
    """Return the rows of an object; None if it has none that Arrow can take.

    A table is converted here. Raises JobFileError if that fails.
    """
    kind = f"{type(rows).__module__.partition('.')[0]}.{type(rows).__name__}"
    with _translate_conversion(kind):
        table = to_arrow(rows)
        if table is not None:
            return _TableFrame(kind, table)
        if _is_query(rows):
            return _QueryFrame("DuckDB relation", rows)
        if not hasattr(rows, "__arrow_c_stream__"):
            return None
        if hasattr(rows, "__len__"):  # it holds its rows
            return _TableFrame(kind, pa.RecordBatchReader.from_stream(rows).read_all())
        started = _started_of(rows)
        if isinstance(rows, pa.RecordBatchReader):
            return _StreamFrame(kind, rows, started)
        if started.imported is None:
            started.imported = pa.RecordBatchReader.from_stream(rows)
        return _StreamFrame(kind, started.imported, started)


class _TableFrame(InputFrame):
    """A table, which any number of jobs can read."""

    def __init__(self, kind: str, table: pa.Table | pa.RecordBatch) -> None:
        super().__init__(kind, table.schema, table.num_rows, table.nbytes)
        self._table = table

    @property
    def identity(self) -> object:
        return self._table

    def look(self) -> Iterator[pa.RecordBatch]:
        if isinstance(self._table, pa.RecordBatch):
            return iter([self._table])
        return iter(self._table.to_batches())

    def take(self) -> Iterator[pa.RecordBatch]:
        return self.look()


class _QueryFrame(InputFrame):
    """A relation of DuckDB, which runs each time that its rows are read."""

    def __init__(self, kind: str, relation: Any) -> None:
        with pa.RecordBatchReader.from_stream(relation.limit(0)) as empty:
            super().__init__(kind, empty.schema)
        self._relation = relation

    def look(self) -> Iterator[pa.RecordBatch]:
        # A connection has one open result, so it must not stay open.
        with pa.RecordBatchReader.from_stream(self._relation) as batches:
            yield from batches

    def take(self) -> Iterator[pa.RecordBatch]:
        return self.look()


class _Started:
    """What has been read of a stream."""

    def __init__(self) -> None:
        self.seen: list[pa.RecordBatch] = []
        """The first batches, which `InputFrame.look` has read."""
        self.is_taken = False
        self.imported: pa.RecordBatchReader | None = None
        """The stream, unless the user's object is one. It may not be given again."""


_started_streams: WeakKeyDictionary[Any, _Started] = WeakKeyDictionary()
"""By the user's object: several datasets may be made of one, and none may miss what is read."""


def _started_of(rows: Any) -> _Started:
    try:
        return _started_streams.setdefault(rows, _Started())
    except TypeError:  # an object of this type has no weak references, or no hash
        return _Started()


class _StreamFrame(InputFrame):
    """A stream, such as a `pyarrow.RecordBatchReader`, whose rows one job can take."""

    reads_once = True

    def __init__(self, kind: str, stream: pa.RecordBatchReader, started: _Started) -> None:
        super().__init__(kind, stream.schema)
        self._stream = stream
        self._started = started

    @property
    def is_taken(self) -> bool:
        return self._started.is_taken

    @property
    def identity(self) -> object:
        return self._started

    def look(self) -> Iterator[pa.RecordBatch]:
        seen = self._started.seen
        position = 0
        while position < len(seen) or self._see_more():
            yield seen[position]
            position += 1

    def take(self) -> Iterator[pa.RecordBatch]:
        if self._started.is_taken:
            raise InputError(f"another job takes the rows of this {self.kind}")
        self._started.is_taken = True
        seen = self._started.seen
        while seen:
            yield seen.pop(0)
        yield from self._stream

    def _see_more(self) -> bool:
        """Read and keep one more batch; return False if there is none."""
        seen = self._started.seen
        if sum(batch.nbytes for batch in seen) > _MAX_LOOK_BYTES:
            raise JobFileError(
                f"the first {format_bytes(_MAX_LOOK_BYTES)} of this {self.kind} were read, and do "
                "not suffice; no more are held in memory for the job that takes its rows: use "
                "collect() or batches()"
            )
        batch = next(self._stream, None)
        if batch is not None:
            seen.append(batch)
        return batch is not None


def _is_query(rows: Any) -> bool:
    duckdb = sys.modules.get("duckdb")
    return duckdb is not None and isinstance(rows, duckdb.DuckDBPyRelation)


@contextmanager
def _translate_conversion(kind: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # whatever the libraries of the objects raise
        raise JobFileError(
            f"read: this {kind} cannot be converted to a table of Arrow: {error}; make a "
            "pyarrow.Table of it"
        ) from error
