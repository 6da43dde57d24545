"""A Delta table with what its live streams have beyond it, as the input of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec
import pyarrow as pa
from msgspec import structs

from mrflight.config.identity import ClusterAccess
from mrflight.config.spec import InputSpec
from mrflight.errors import JobFileError
from mrflight.shuffle.wire.tail_protocol import TailRead
from mrflight.sources.bad_rows import BadRowLog
from mrflight.sources.base import Reader, Source, Split, pack_splits
from mrflight.sources.fresh_rows import FreshRead, FreshTail, as_stored, read_fresh
from mrflight.sources.tail_place import LogTail, TailPlace, partition_of_log
from mrflight.storage import Location
from mrflight.storage.delta import is_table

_PIN_S = 3600.0
"""For how long the tails keep the rows of a job, unless they run out of memory."""
_SPLIT_BYTES = 64 << 20
"""About so much of an event log is read by a map task."""


class TailPart(msgspec.Struct, frozen=True):
    """The rows of a tail that a job reads: always the same ones."""

    place: TailPlace
    request: TailRead

    @classmethod
    def of(cls, tail: FreshTail) -> TailPart:
        """Return the part that was read, which its tail has pinned."""
        return cls(tail.place, TailRead(tail.name, tail.since, tail.extent.watermark))


class TailSplit(Split, frozen=True):
    """The rows of a tail, which a map task reads where they are.

    The units of an event log are its rows. Another tail is read as a whole.
    """

    part: TailPart | None = None

    @classmethod
    def of(cls, tail: FreshTail) -> TailSplit:
        """Return one split of all rows."""
        start, stop = 0, 1
        if isinstance(tail.place, LogTail):
            name = partition_of_log(tail.place.key)
            start, stop = tail.since[name], tail.extent.watermark[name]
        path = f"tail of {tail.stream}"
        return cls(path, start, stop, tail.extent.size_bytes, part=TailPart.of(tail))

    def rows(self) -> list[pa.RecordBatch]:
        """Return the rows; raise what reading a tail raises."""
        assert self.part is not None, self
        place, request = self.part.place, self.part.request
        if isinstance(place, LogTail):
            name = partition_of_log(place.key)
            request = TailRead("", {name: self.start}, {name: self.stop})
        return place.read(request).batches


@dataclass(frozen=True)
class FreshReader(Reader):
    """Reads the files of a version of a table, and rows of tails."""

    files: Reader
    schema: pa.Schema
    """The columns that are read."""

    @property
    def reads_packs(self) -> bool:
        return self.files.reads_packs

    def select(self, columns: Sequence[str]) -> Reader:
        schema = pa.schema([self.schema.field(name) for name in columns])
        return replace(self, files=self.files.select(columns), schema=schema)

    def with_bad_rows(self, log: BadRowLog) -> Reader:
        return replace(self, files=self.files.with_bad_rows(log))

    def count_rows(self, piece: Split) -> int | None:
        return None if isinstance(piece, TailSplit) else self.files.count_rows(piece)

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        tails = [piece for piece in split.pieces if isinstance(piece, TailSplit)]
        if not tails:
            yield from self.files.read(split)
            return
        if others := [piece for piece in split.pieces if not isinstance(piece, TailSplit)]:
            yield from self.files.read(pack_splits(others))
        for piece in tails:
            for batch in piece.rows():
                yield as_stored(batch, self.schema)


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
    source = open_version(structs.replace(spec, fresh=False, version=found.version))
    assert source.reader.schema is not None, "a table has columns"
    tails = [
        piece
        for tail in found.tails
        if tail.extent.rows
        for piece in TailSplit.of(tail).divide(-(-tail.extent.size_bytes // _SPLIT_BYTES))
    ]
    rows = sum(tail.extent.rows for tail in found.tails)
    return structs.replace(
        source,
        reader=FreshReader(source.reader, source.reader.schema),
        splits=(*source.splits, *tails),
        size_bytes=source.size_bytes + sum(tail.size_bytes for tail in tails),
        rows=None if source.rows is None else source.rows + rows,
        are_alike=source.are_alike and not tails,
    )


def _is_table(root: Location) -> bool:
    return root.is_folder() and is_table(root)
