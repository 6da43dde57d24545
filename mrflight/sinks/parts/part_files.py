"""The part files that one reduce attempt has open, one for each partition value.

Rows wait in memory until they make a chunk (a row group) of their value's
file. Two things are bounded: what waits, by encoding the largest early, and
the files that are open, by ending the one that was written longest ago; a
value that gets more rows after that goes on in a further file.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from mrflight.sinks.parts.async_closer import AsyncCloser
from mrflight.sinks.parts.base import PartFile
from mrflight.sinks.parts.dictionaries import table_of
from mrflight.sinks.parts.encoder import ChunkLimit
from mrflight.sinks.parts.part_file import OpenPartFile
from mrflight.sinks.parts.partition_split import Values


class PartLimits(msgspec.Struct, frozen=True):
    """What one attempt may hold."""

    max_open_files: int = 100
    max_buffered_bytes: int = 128 << 20
    max_closing_files: int = 4
    """Where closing one takes time."""


DEFAULT_LIMITS = PartLimits()


@dataclass
class _Waiting:
    """Rows of one partition value that are not encoded yet."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    size_bytes: int = 0
    files: int = 0
    """Files that were begun for the value."""

    def add(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)
        self.rows += batch.num_rows
        self.size_bytes += batch.nbytes

    def take(self) -> list[pa.RecordBatch]:
        batches, self.batches, self.rows, self.size_bytes = self.batches, [], 0, 0
        return batches


class PartFiles:
    """Files by partition value; ended by `finish` or `discard`."""

    def __init__(
        self,
        columns: tuple[str, ...],
        open_file: Callable[[Values, int], OpenPartFile],
        chunk: ChunkLimit,
        limits: PartLimits,
        closer: AsyncCloser,
    ) -> None:
        """``open_file`` makes the n-th file of a value, without writing to the disk yet."""
        self._columns = columns
        self._open_file = open_file
        self._chunk = chunk
        self._bounds = limits
        self._closer = closer
        self._waiting: dict[Values, _Waiting] = {}
        self._waiting_bytes = 0
        self._open: OrderedDict[Values, OpenPartFile] = OrderedDict()  # written last comes last
        self._begun: list[OpenPartFile] = []
        self._done: list[PartFile] = []

    def add(self, values: Values, batch: pa.RecordBatch) -> None:
        """Take the rows of one partition value."""
        waiting = self._waiting.setdefault(values, _Waiting())
        before = waiting.size_bytes
        waiting.add(batch)
        self._waiting_bytes += waiting.size_bytes - before
        if waiting.rows >= self._chunk.rows or waiting.size_bytes >= self._chunk.size_bytes:
            self._encode(values)
        if self._waiting_bytes > self._bounds.max_buffered_bytes:
            self._encode_largest()

    def finish(self) -> list[PartFile]:
        """Write what waits and end every file; those are there once ``closer`` have ended."""
        for values, waiting in self._waiting.items():
            if waiting.rows:
                self._encode(values)
            if values in self._open:
                self._end(values)
        return self._done

    def discard(self) -> None:
        """Remove every file that was begun; never raises."""
        for file in self._begun:
            file.discard()

    def _encode(self, values: Values) -> None:
        waiting = self._waiting[values]
        self._waiting_bytes -= waiting.size_bytes
        rows = table_of(waiting.take())
        file = self._open.get(values)
        if file is not None and not file.takes(rows):
            self._end(values)
            file = None
        if file is None:
            file = self._begin(values, waiting)
        self._open.move_to_end(values)
        file.write(rows)

    def _begin(self, values: Values, waiting: _Waiting) -> OpenPartFile:
        if len(self._open) >= self._bounds.max_open_files:
            self._end(next(iter(self._open)))
        file = self._open[values] = self._open_file(values, waiting.files)
        waiting.files += 1
        self._begun.append(file)
        return file

    def _end(self, values: Values) -> None:
        texts = dict(zip(self._columns, values, strict=True))
        self._done.append(self._open.pop(values).finish(texts, self._closer))

    def _encode_largest(self) -> None:
        """Encode the largest until half is free, so that sorting them pays."""
        by_size = sorted(self._waiting, key=lambda v: self._waiting[v].size_bytes, reverse=True)
        for values in by_size:
            if self._waiting_bytes <= self._bounds.max_buffered_bytes // 2:
                return
            self._encode(values)
