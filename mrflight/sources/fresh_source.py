"""A Delta table with what its live streams have beyond it, as the input of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import pyarrow as pa
from msgspec import structs

from mrflight.config.identity import Endpoint
from mrflight.config.input_spec import InputSpec
from mrflight.errors import JobFileError
from mrflight.shuffle.client.tail_client import TailClient
from mrflight.shuffle.wire.tail_protocol import TailRead
from mrflight.sources.bad_rows import BadRowLog
from mrflight.sources.base import Reader, Source, Split, pack_splits
from mrflight.sources.fresh_rows import FreshRead, FreshTail, as_stored, read_fresh
from mrflight.storage import Location, locate
from mrflight.storage.delta import is_table

_PIN_S = 3600.0
"""For how long the tails keep the rows of a job, unless they run out of memory."""


class TailPart(msgspec.Struct, frozen=True):
    """The rows of a tail that a job reads: always the same ones."""

    server: Endpoint
    request: TailRead

    @classmethod
    def of(cls, tail: FreshTail) -> TailPart:
        """Return the part that was read, which its tail has pinned."""
        since, until = tail.since, tail.rows.watermark
        return cls(tail.file.server, TailRead(tail.file.tail, since, until))


class TailSplit(Split, frozen=True):
    """The rows of a tail, which a map task reads from its data server."""

    part: TailPart | None = None


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
            yield from self._read_tail(piece)

    def _read_tail(self, split: TailSplit) -> Iterator[pa.RecordBatch]:
        assert split.part is not None, split
        with TailClient(split.part.server) as client:
            for batch in client.read(split.part.request).batches:
                yield as_stored(batch, self.schema)


def open_fresh(
    name: str,
    spec: InputSpec,
    base: Path,
    options: Mapping[str, str],
    open_version: Callable[[InputSpec], Source],
) -> Source:
    """Return the source of the newest version of a table, and of what its tails have beyond it.

    ``open_version`` opens the input with a version instead.

    Raises JobFileError for another input than a Delta table, and what `read_fresh` raises.
    """
    key = f"inputs.{name}.fresh"
    if spec.version is not None or spec.timestamp is not None or spec.sample < 1:
        raise JobFileError(
            f"{key} reads the newest rows; leave out version, timestamp and sample, or this"
        )
    roots = [locate(path, base, options) for path in spec.paths]
    if spec.in_catalog or len(roots) != 1 or not _is_table(roots[0]):
        raise JobFileError(f"{key} is only for the path of one Delta table; leave it out")
    found = read_fresh(roots[0], FreshRead(pin_s=_PIN_S))
    source = open_version(structs.replace(spec, fresh=False, version=found.version))
    assert source.reader.schema is not None, "a table has columns"
    tails = [
        TailSplit(f"tail of {tail.file.stream}", 0, 1, size, part=TailPart.of(tail))
        for tail in found.tails
        if (size := sum(batch.nbytes for batch in tail.rows.batches))
    ]
    rows = sum(batch.num_rows for batch in found.batches)
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
