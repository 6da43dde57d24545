"""Reads the rows of an event log as record batches with their offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from mrflight.shuffle.log.frame import Frame, deserialize

BATCH_BYTES = 2**20
"""Frames of single rows are joined up to this size, or readers would get a message for each."""
_BATCH_ROWS = 65_536


def read_rows(
    frames: Iterable[Frame], schema: pa.Schema, start: int, stop: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows from ``start`` to ``stop`` of consecutive frames, with their first offsets."""
    pieces: list[pa.RecordBatch] = []
    first = rows = size = 0
    for frame in frames:
        begin, end = max(start, frame.offset), min(stop, frame.stop)
        if begin >= end:
            continue
        if not pieces:
            first = begin
        batch = deserialize(frame.payload, schema)
        pieces.append(batch.slice(begin - frame.offset, end - begin))
        rows += end - begin
        size += len(frame.payload)
        if size >= BATCH_BYTES or rows >= _BATCH_ROWS:
            yield first, _one(pieces)
            pieces, rows, size = [], 0, 0
    if pieces:
        yield first, _one(pieces)


def _one(pieces: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)
