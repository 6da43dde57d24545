"""Choose parts of an input as its sample. This is arithmetic only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from mrflight.sources.base import Reader, Source, Split

_MIN_PART_BYTES = 64 << 10
_MAX_PART_BYTES = 8 << 20
"""A map takes some 10 ms beside the rows of its part, and a part of this size some 100 ms."""

_PARTS = 16
"""A sample has so many parts, unless these would be smaller or larger."""


def take_sample(source: Source, fraction: float) -> Source:
    """Return the source with only this fraction of its bytes: at least one part of one file.

    The parts are spread evenly over the input, so that what changes from its start to its end is
    in the sample as well. They are the same each time. What cannot be cut is taken whole or not at
    all: a compressed file, a row group, a record batch.
    """
    part_bytes = round(source.size_bytes * fraction / _PARTS)
    part_bytes = min(max(part_bytes, _MIN_PART_BYTES), _MAX_PART_BYTES)
    cut = list(_cut(source, part_bytes))
    splits = _join_neighbours(list(_take_evenly(cut, fraction)) or cut[:1])
    sampled = {split.path for split in splits}
    return replace(
        source,
        files=tuple(path for path in source.files if path in sampled),
        size_bytes=sum(split.size_bytes for split in splits),
        splits=tuple(splits),
        rows=None,
        sampled_from_bytes=source.size_bytes,
    )


def _cut(source: Source, part_bytes: int) -> Iterator[Split]:
    reader: Reader = source.reader
    for split in source.splits:
        yield from reader.divide(split, -(-split.size_bytes // part_bytes))


def _take_evenly(parts: Sequence[Split], fraction: float) -> Iterator[Split]:
    """Yield parts so that those until any point have about this fraction of the bytes until it."""
    seen = taken = 0
    for part in parts:
        seen += part.size_bytes
        if fraction * seen - taken >= part.size_bytes / 2:
            taken += part.size_bytes
            yield part


def _join_neighbours(parts: Sequence[Split]) -> list[Split]:
    """Return the same parts, with those that follow one another in a file joined."""
    joined: list[Split] = []
    for part in parts:
        last = joined[-1] if joined else None
        if last is not None and (last.path, last.stop) == (part.path, part.start):
            size_bytes = last.size_bytes + part.size_bytes
            joined[-1] = replace(last, stop=part.stop, size_bytes=size_bytes)
        else:
            joined.append(part)
    return joined
