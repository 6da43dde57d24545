"""What a source is: files of one schema, cut into splits that map tasks read.

A `Source` is found once, by the driver, and knows its files. What travels to
a worker is its `reader`, small and picklable, and one `Split` per map task.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from mrflight.sources.file_version import FileVersion
from mrflight.system.shared_payload import SharedPayload

COMPRESSED = 4
"""`Source.expansion` of files that are compressed, or encoded as parquet is."""


class Split(msgspec.Struct, frozen=True):
    """A piece of one file that one map task reads.

    ``start`` and ``stop`` count what the format can seek to: bytes of csv and
    json (a line belongs to the split that its first byte is in), row groups
    of parquet and Delta, record batches of arrow. 0 and 1 are a file that can
    only be read from its start to its end. ``size_bytes`` is what the piece
    weighs on disk.
    """

    path: str
    start: int
    stop: int
    size_bytes: int
    constants: tuple[tuple[str, object], ...] = ()
    """Columns of one value that the file itself lacks: a Delta table's partition values."""
    version: FileVersion | None = None
    """Of the file as it was planned; None where there is no file to read."""

    def cut(self, count: int) -> list[Split]:
        """At most ``count`` splits of about the same size that tile this one."""
        units = self.stop - self.start
        count = max(1, min(count, units))
        bounds = [self.start + i * units // count for i in range(count + 1)]
        weight = self.size_bytes / max(1, units)
        return [
            replace(self, start=start, stop=stop, size_bytes=round(weight * (stop - start)))
            for start, stop in pairwise(bounds)
        ]


class Reader(SharedPayload, ABC):
    """Reads splits; picklable, without the list of files. Made by a `Source`."""

    schema: pa.Schema | None
    """Of every batch that `read` yields; None where only that can tell it."""

    @abstractmethod
    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """The rows of ``split`` in file order, in batches of a few MiB.

        Every row of a file is in exactly one of the splits that tile it.
        Raises InputError (BadRowError with file and line) for what cannot be read,
        and for a file that is no longer of the split's version; StoreError where its store fails.
        """

    def narrowed(self, columns: Sequence[str]) -> Reader:
        """One that reads only these columns, which are some of ``schema`` in its order.

        Or the same one, where leaving columns out saves nothing.
        """
        return self

    def read_encoded(self, split: Split) -> Iterator[pa.RecordBatch]:
        """As `read`, but a column of few strings may come as the dictionary that it is stored as.

        That column's type is then not the one in `schema`.
        """
        return self.read(split)

    def file_rows(self, rows: int) -> int:
        """Of ``rows`` that `read` has given, how many were read from files: all but a stage's."""
        return rows

    def share_rows(self) -> int | None:
        """How many rows of shares `read` has read, of which nobody else knows how many they are.

        None where it was not read to its end, as by a limit.
        """
        return 0

    def pieces(self, split: Split, count: int) -> list[Split]:
        """At most ``count`` splits that tile ``split``, for looking here and there into it."""
        return split.cut(count)


class Source(msgspec.Struct, frozen=True):
    """One input as it was found: its reader, and its files cut into splits."""

    name: str
    reader: Reader
    files: tuple[str, ...]
    size_bytes: int
    splits: tuple[Split, ...]
    """At least one, also for an input without rows, so that its schema is always known."""
    expansion: int = 1
    """What a byte of its files is in memory, roughly."""
    version: int | None = None
    """Of a Delta table: the one that is read."""
    share: float = 1.0
    """Of the columns that its files have: how many are read."""
    is_made: bool = False
    """Whether the job makes its rows as they are read, which takes memory as well."""

    @property
    def rows_bytes(self) -> int:
        """What its rows weigh in memory, roughly."""
        return round(self.size_bytes * self.expansion * self.share)

    def narrowed(self, columns: Sequence[str]) -> Source:
        """The same with these columns only, which are some of its own in their order."""
        reader, schema = self.reader.narrowed(columns), self.reader.schema
        if reader is self.reader or schema is None:
            return self
        return replace(self, reader=reader, share=self.share * len(columns) / len(schema))
