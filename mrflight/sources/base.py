"""The interface of every source: files of one schema, cut into splits that map tasks read.

The driver opens a `Source`, which knows all its files. A worker only gets its `reader`, which is
small and picklable, and one `Split` per map task. For small files that is a `PackedSplit`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from itertools import pairwise

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from mrflight.compute.value_ranges import ScanBounds
from mrflight.sources.bad_rows import BadRowLog, BadRowPolicy
from mrflight.storage import Location
from mrflight.storage.store import FileVersion, Store
from mrflight.system.shared_payload import SharedPayload

DECOMPRESSION_RATIO = 4
"""The `Source.decompression_ratio` of compressed text, and of Parquet's encodings."""


class Split(msgspec.Struct, frozen=True):
    """A part of one file that one map task reads.

    ``start`` and ``stop`` count the units that the format can seek to: bytes of csv and json (a
    line belongs to the split with its first byte), row groups of parquet and Delta, record batches
    of arrow. A file that can only be read from its start to its end has the split 0 to 1.
    ``size_bytes`` is the part's size on disk.
    """

    path: str
    start: int
    stop: int
    size_bytes: int
    constants: tuple[tuple[str, object], ...] = ()
    """Columns with one value that are not in the file: the partition values of a Delta table, or
    of ``key=value`` folders."""
    version: FileVersion | None = None
    """The file's version when the job was planned; None if there is no file to read."""

    @property
    def pieces(self) -> tuple[Split, ...]:
        """The parts of files that make up this split, in the order of the rows."""
        return (self,)

    @property
    def place(self) -> str:
        """The name of the split in messages."""
        return f"{self.path} from {self.start}"

    def is_followed_by(self, other: Split) -> bool:
        """Return whether another split begins in the same file where this one ends."""
        return (
            type(self) is type(other) is Split
            and (self.path, self.stop) == (other.path, other.start)
            and (self.version, self.constants) == (other.version, other.constants)
        )

    def divide(self, count: int) -> list[Split]:
        """Return at most ``count`` splits of about the same size that cover this one."""
        units = self.stop - self.start
        count = min(count, units)
        if count <= 1:
            return [self]
        bounds = [self.start + i * units // count for i in range(count + 1)]
        unit_bytes = self.size_bytes / units
        return [
            replace(self, start=start, stop=stop, size_bytes=round(unit_bytes * (stop - start)))
            for start, stop in pairwise(bounds)
        ]


class PackedSplit(Split, frozen=True):
    """Parts of several files that one map task reads one after the other; see `pack_splits`.

    ``path``, ``start`` and ``stop`` are those of the first part. Each part has its own version.
    """

    parts: tuple[Split, ...] = ()

    @property
    def pieces(self) -> tuple[Split, ...]:
        return self.parts

    @property
    def place(self) -> str:
        files = dict.fromkeys(part.path for part in self.parts)
        if len(files) == 1:
            return self.parts[0].place
        return f"{len(files):,} files from {self.path} to {self.parts[-1].path}"

    def divide(self, count: int) -> list[Split]:
        """Return at most ``count`` splits, cut between the parts and within large ones."""
        target = max(1, -(-self.size_bytes // max(1, count)))
        cut = [each for part in self.parts for each in part.divide(-(-part.size_bytes // target))]
        count = max(1, min(count, len(cut)))
        bounds = [i * len(cut) // count for i in range(count + 1)]
        return [pack_splits(cut[start:stop]) for start, stop in pairwise(bounds)]


def pack_splits(parts: Sequence[Split]) -> Split:
    """Return one split of all parts, which has their constants if these are the same."""
    first = parts[0]
    if len(parts) == 1:
        return first
    constants = first.constants if all(p.constants == first.constants for p in parts) else ()
    size_bytes = sum(part.size_bytes for part in parts)
    return PackedSplit(
        first.path, first.start, first.stop, size_bytes, constants, parts=tuple(parts)
    )


def split_runs(
    path: str,
    version: FileVersion,
    sizes: Sequence[int],
    split_bytes: int,
    needed: Sequence[bool] | None = None,
) -> list[Split]:
    """Return runs of row groups or record batches, each as long as ``split_bytes`` allows.

    ``sizes`` are their bytes. Those that are not needed are in no run; by default all are. There is
    at least one split, which may be empty.
    """
    bounds = [*_run_starts(sizes, split_bytes, needed), len(sizes)]
    runs = [(start, stop) for start, stop in pairwise(bounds) if not needed or needed[start]]
    return [
        Split(path, start, stop, sum(sizes[start:stop]), version=version)
        for start, stop in runs or [(0, 0)]
    ]


def _run_starts(
    sizes: Sequence[int], split_bytes: int, needed: Sequence[bool] | None
) -> Iterator[int]:
    yield 0
    filled = 0
    for i, size in enumerate(sizes):
        is_other = needed is not None and needed[i] != needed[i - 1]
        if i > 0 and (is_other or filled + size > split_bytes):
            yield i
            filled = 0
        filled += size


class Reader(SharedPayload, ABC):
    """Reads the splits of a `Source`. It is picklable and has no list of files."""

    schema: pa.Schema | None
    """The schema of every batch that `read` yields; None if only reading can tell."""

    @property
    def reads_packs(self) -> bool:
        """True if `read` takes a `PackedSplit` as well."""
        return False

    @abstractmethod
    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Yield the rows of ``split`` in file order, in batches of a few MiB.

        If splits cover a file without overlap, every row is in exactly one of them.
        Raises InputError (BadRowError with file and line) for rows that cannot be read, and for a
        file that no longer has the split's version; StoreError if its store fails.
        """

    def select(self, columns: Sequence[str]) -> Reader:
        """Return a reader of these columns only, which are some of ``schema`` in its order.

        Returns this reader if leaving columns out saves nothing.
        """
        return self

    def within(self, bounds: tuple[ScanBounds, ...]) -> Reader:
        """Return a reader of rows of which nothing beyond these bounds is needed."""
        return self

    def count_rows(self, piece: Split) -> int | None:
        """Return the number of rows in a part of one file if the file has it, without the rows."""
        return None

    def read_encoded(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Yield what `read` yields, but columns with few distinct strings may stay dictionaries.

        The type of such a column is then not the one in `schema`.
        """
        return self.read(split)

    def file_rows(self, rows: int) -> int:
        """Return how many of the ``rows`` that `read` gave came from files, not from a stage."""
        return rows

    def slice_rows(self) -> int | None:
        """Return how many rows of slices of skewed partitions `read` has read.

        Nothing else counts them. None if `read` was not exhausted, for example because of a limit.
        """
        return 0

    def with_bad_rows(self, log: BadRowLog) -> Reader:
        """Return a reader that tells ``log`` of the rows that it skips, if it skips bad rows."""
        return self

    def divide(self, split: Split, count: int) -> list[Split]:
        """Return at most ``count`` splits that cover ``split``, for sampling parts of it."""
        return split.divide(count)


@dataclass(frozen=True)
class FileReader(Reader):
    """Reads splits of files.

    All parts of a `PackedSplit` that it reads have the constants of the split; `PackedReader` sees
    to that.
    """

    root: Location = field(kw_only=True)
    """The folder of the files, or any other location in their store."""

    def in_store(self, store: Store) -> FileReader:
        """Return a reader of the same files through another object of their store."""
        return with_fields(self, root=self.root.in_store(store))

    def select(self, columns: Sequence[str]) -> FileReader:
        return self

    def with_bad_rows(self, log: BadRowLog) -> FileReader:
        return self


class Source(msgspec.Struct, frozen=True):
    """An opened input: its reader, and its files cut into splits."""

    name: str
    reader: Reader
    files: tuple[str, ...]
    size_bytes: int
    splits: tuple[Split, ...]
    """At least one, even without rows, so that some task always reports the schema."""
    decompression_ratio: int = 1
    """Roughly how many bytes in memory a byte of the files becomes."""
    version: int | None = None
    """The version of a Delta table that is read."""
    partitioned_by: tuple[str, ...] = ()
    """The columns in the names of ``key=value`` folders."""
    skipped_folders: int = 0
    """The number of such folders that were not listed, because the input's sql needs none of their
    rows."""
    are_alike: bool = False
    """True if the files are Parquet and all have the columns of the reader, with their types and in
    their order."""
    differences: tuple[str, ...] = ()
    """What files of different schemas have as null or in a wider type."""
    skipped_files: int = 0
    """The number of files of a Delta table that are not opened, because the input needs none of
    their rows."""
    skipped_row_groups: int = 0
    """The number of row groups that are not read, because the input needs none of their rows."""
    selected_fraction: float = 1.0
    """The fraction of the files' columns that is read."""
    bad_rows: BadRowPolicy | None = None
    """What is done with rows that cannot be read; None if they are errors."""
    sampled_from_bytes: int | None = None
    """The size of the whole input if only a sample of it is read."""
    is_intermediate: bool = False
    """True if the rows are the output of a stage. Producing them also takes memory."""
    rows: int | None = None
    """The rows of its files or its frame, if these say how many they are."""

    @property
    def rows_bytes(self) -> int:
        """Roughly how many bytes the rows take in memory."""
        return round(self.size_bytes * self.decompression_ratio * self.selected_fraction)

    def without_row_groups(self, skipped: int) -> Source:
        """Return the source, whose splits lack so many row groups already."""
        if not skipped:
            return self
        splits = tuple(each for each in self.splits if each.stop > each.start) or self.splits[:1]
        size_bytes = sum(split.size_bytes for split in splits)
        return replace(self, splits=splits, size_bytes=size_bytes, skipped_row_groups=skipped)

    def select(self, columns: Sequence[str]) -> Source:
        """Return the source with these columns only, which are some of its own in their order."""
        reader, schema = self.reader.select(columns), self.reader.schema
        if reader is self.reader or schema is None:
            return self
        fraction = self.selected_fraction * len(columns) / len(schema)
        return replace(self, reader=reader, selected_fraction=fraction)
