"""A Delta table with what its live streams have beyond it, as the input of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec
import pyarrow as pa
from msgspec import structs

from mrflight.config.identity import ClusterAccess
from mrflight.config.input_spec import InputSpec
from mrflight.config.tail_merge import TailMerge
from mrflight.errors import JobFileError
from mrflight.shuffle.wire.tail_protocol import TailRead
from mrflight.sources.bad_rows import BadRowLog
from mrflight.sources.base import Reader, Source, Split, pack_splits
from mrflight.sources.filtered_columns import table_columns, with_columns
from mrflight.sources.fresh_changes import (
    FreshLayers,
    ReplacedKeys,
    tail_layer,
    without_all,
)
from mrflight.sources.fresh_rows import FreshRead, FreshTail, FreshVersion, read_fresh
from mrflight.sources.tail_place import LogTail, TailPlace
from mrflight.storage import Location
from mrflight.storage.delta import is_table

_PIN_S = 3600.0
"""For how long the tails keep the rows of a job, unless they run out of memory."""
_SPLIT_BYTES = 64 << 20
"""About so much of an event log is read by a map task."""


class TailPart(msgspec.Struct, frozen=True):
    """The rows of a tail that a job reads: always the same ones."""

    stream: str
    place: TailPlace
    request: TailRead
    merge: TailMerge | None
    """Set if the rows are changes of rows of the table."""

    @classmethod
    def of(cls, tail: FreshTail) -> TailPart:
        """Return the part that was read, which its tail has pinned."""
        request = TailRead(tail.name, tail.since, tail.extent.watermark)
        return cls(tail.stream, tail.place, request, tail.merge)

    def read(self, schema: pa.Schema, request: TailRead) -> list[pa.RecordBatch]:
        """Ask for rows, and return them with the columns of the table that are read."""
        rows = self.place.read(request).batches
        return tail_layer(self.stream, rows, self.merge, schema).rows


class TailSplit(Split, frozen=True):
    """The rows of a tail, which a map task reads where they are.

    The units of an event log are its rows. Another tail is read as a whole.
    """

    part: TailPart | None = None
    number: int = 0
    """That of the tail among those of the table."""

    @classmethod
    def of(cls, tail: FreshTail, number: int, size_bytes: int) -> TailSplit:
        """Return one split of all rows."""
        start, stop = 0, 1
        if isinstance(tail.place, LogTail):
            name = tail.place.partition
            start, stop = tail.since[name], tail.extent.watermark[name]
        path = f"tail of {tail.stream}"
        return cls(path, start, stop, size_bytes, part=TailPart.of(tail), number=number)

    def rows(self, schema: pa.Schema) -> list[pa.RecordBatch]:
        """Return the rows with these columns of the table; raise what reading a tail raises."""
        assert self.part is not None, self
        request, place = self.part.request, self.part.place
        if isinstance(place, LogTail):
            name = place.partition
            request = TailRead("", {name: self.start}, {name: self.stop})
        return self.part.read(schema, request)


@dataclass(frozen=True)
class FreshReader(Reader):
    """Reads the files of a version of a table, and rows of tails."""

    files: Reader
    """Reads those columns of the files by which rows are told that tails replace, too."""
    schema: pa.Schema
    """The columns that are read."""
    replaced: tuple[ReplacedKeys | None, ...] = ()
    """The keys of which each tail has changes, if one has some."""

    @property
    def reads_packs(self) -> bool:
        return self.files.reads_packs

    def select(self, columns: Sequence[str]) -> Reader:
        schema = pa.schema([self.schema.field(name) for name in columns])
        keys = {name for each in self.replaced if each is not None for name in each.names}
        needed = [name for name in self._stored.names if name in {*columns, *keys}]
        return replace(self, files=self.files.select(needed), schema=schema)

    def with_bad_rows(self, log: BadRowLog) -> Reader:
        return replace(self, files=self.files.with_bad_rows(log))

    def count_rows(self, piece: Split) -> int | None:
        is_counted = not (self.replaced or isinstance(piece, TailSplit))
        return self.files.count_rows(piece) if is_counted else None

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        tails = [piece for piece in split.pieces if isinstance(piece, TailSplit)]
        if not tails:
            yield from self._read_files(split)
            return
        if others := [piece for piece in split.pieces if not isinstance(piece, TailSplit)]:
            yield from self._read_files(pack_splits(others))
        for piece in tails:
            yield from self._read_tail(piece)

    @property
    def _stored(self) -> pa.Schema:
        assert self.files.schema is not None, "a table has columns"
        return self.files.schema

    def _read_files(self, split: Split) -> Iterator[pa.RecordBatch]:
        if not self.replaced:
            yield from self.files.read(split)
            return
        yield from self._remaining(self.files.read(split), 0)

    def _read_tail(self, split: TailSplit) -> Iterator[pa.RecordBatch]:
        yield from self._remaining(split.rows(self._stored), split.number + 1)

    def _remaining(self, rows: Iterable[pa.RecordBatch], first: int) -> Iterator[pa.RecordBatch]:
        """Yield the columns of those rows that no tail from ``first`` on replaces."""
        replaced = [None if each is None else each.shared() for each in self.replaced[first:]]
        for batch in rows:
            yield without_all(batch, replaced).select(self.schema.names)


def open_fresh(
    name: str,
    spec: InputSpec,
    roots: Sequence[Location],
    cluster: ClusterAccess | None,
    open_version: Callable[[InputSpec], Source],
) -> Source:
    """Return the source of the newest version of a table, and of what its tails have beyond it.

    ``roots`` are the paths of the input, and ``cluster`` is the standing cluster of the job, which
    may have the tails. ``open_version`` opens the input with a version instead.

    Raises JobFileError for another input than a Delta table, and what `read_fresh` raises.
    """
    key = f"inputs.{name}.fresh"
    if spec.version is not None or spec.timestamp is not None or spec.sample < 1:
        raise JobFileError(
            f"{key} reads the newest rows; leave out version, timestamp and sample, or this"
        )
    if spec.in_catalog or len(roots) != 1 or not _is_table(roots[0]):
        raise JobFileError(f"{key} is only for the path of one Delta table; leave it out")
    found = read_fresh(roots[0], FreshRead(pin_s=_PIN_S, cluster=cluster, is_planned=True))
    pinned = structs.replace(spec, fresh=False, version=found.version)
    source = open_version(with_columns(pinned, found.merge_keys))
    stored = source.reader.schema
    assert stored is not None, "a table has columns"
    layers = found.layers(stored)
    reader = FreshReader(source.reader, stored, _replaced(layers))
    tails = _tail_splits(found, layers)
    is_merged = bool(reader.replaced)
    rows = sum(tail.extent.rows for tail in found.tails)
    source = structs.replace(
        source,
        reader=reader,
        splits=(*source.splits, *tails),
        size_bytes=source.size_bytes + sum(tail.size_bytes for tail in tails),
        rows=None if source.rows is None or is_merged else source.rows + rows,
        are_alike=source.are_alike and not (tails or is_merged),
    )
    columns = table_columns(name, pinned, stored)
    return source if columns == stored.names else source.select(columns)


def _replaced(layers: FreshLayers) -> tuple[ReplacedKeys | None, ...]:
    """Return the keys that each tail replaces; nothing if none replaces any."""
    return tuple(layers.replaced) if any(layers.replaced) else ()


def _tail_splits(found: FreshVersion, layers: FreshLayers) -> list[Split]:
    """Return the splits of those tails that have rows to add."""
    splits: list[Split] = []
    for number, (tail, layer) in enumerate(zip(found.tails, layers.layers, strict=True)):
        size, has_rows = tail.extent.size_bytes, tail.extent.rows > 0
        if tail.merge is not None:
            size = sum(batch.nbytes for batch in layer.rows)
            has_rows = bool(layer.rows)
        if has_rows:
            splits += TailSplit.of(tail, number, size).divide(-(-size // _SPLIT_BYTES))
    return splits


def _is_table(root: Location) -> bool:
    return root.is_folder() and is_table(root)
