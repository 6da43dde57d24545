"""Record batches of plain clients, cut before they are decoded: see `decoded_size`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyarrow import types

from mrflight.compute.layout import canonical_schema, to_canonical
from mrflight.errors import ProtocolError
from mrflight.shuffle.store.decoded_size import Sizes, fixed_bytes, is_list, numbers_of, row_bytes
from mrflight.units import format_bytes

SLICE_BYTES = 4 * 2**20
"""Decoded at a time. Encoding them as a block takes three times as much for a moment."""

LARGEST_ROW_BYTES = 64 * 2**20
"""Of a row that is larger once decoded than all bytes of the message that it came in."""

_ROWS_AT_ONCE = 2**18
"""Whose sizes are computed together."""


def canonical_slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """All rows of ``batch`` in order and in their plain layout; one batch where there are none.

    Each has at most `SLICE_BYTES`, or one row; what is never decoded is not counted. ProtocolError
    for a row of more than `LARGEST_ROW_BYTES` that is larger than the message as it came, and for
    so much that is not decoded.
    """
    schema = canonical_schema(batch.schema)
    # What several columns share, as a message may say, is counted for each: each encodes it.
    if batch.nbytes <= SLICE_BYTES and batch.schema.equals(schema):
        yield to_canonical(batch, schema)
        return
    most = max(_received_bytes(batch), LARGEST_ROW_BYTES)
    for piece in _cut(batch, most):
        columns = [_without_the_rest(column) for column in piece.columns]
        compact = pa.RecordBatch.from_arrays(columns, schema=batch.schema) if columns else piece
        plain = to_canonical(compact, schema)
        if plain.nbytes > most:  # of unions and list views
            raise ProtocolError(
                f"columns that share bytes have {format_bytes(plain.nbytes)} together, and at most "
                f"{format_bytes(most)} are taken of this message; send each with bytes of its own"
            )
        yield plain


def _received_bytes(batch: pa.RecordBatch) -> int:
    """The bytes that are there, each counted once: nothing keeps buffers of a message apart.

    Without dictionaries that are within other values.
    """
    found = until = 0
    for start, end in sorted(
        (buffer.address, buffer.address + buffer.size)
        for column in batch.columns
        for buffer in _buffers(column)
        if buffer is not None
    ):
        found += max(0, end - max(start, until))
        until = max(until, end)
    return found


def _buffers(column: pa.Array) -> Iterator[pa.Buffer | None]:
    yield from column.buffers()
    if isinstance(column, pa.DictionaryArray):
        yield from column.dictionary.buffers()


def _cut(batch: pa.RecordBatch, most_of_a_row: int) -> Iterator[pa.RecordBatch]:
    varying = [column for column in batch.columns if fixed_bytes(column.type) is None]
    fixed = sum(fixed_bytes(column.type) or 0.0 for column in batch.columns)
    if not varying:
        _check_row(fixed, most_of_a_row)
        rows = max(1, int(SLICE_BYTES // fixed)) if fixed else max(1, batch.num_rows)
        for start in range(0, max(1, batch.num_rows), rows):
            yield batch.slice(start, rows)
        return
    for start in range(0, max(1, batch.num_rows), _ROWS_AT_ONCE):
        window = batch.slice(start, _ROWS_AT_ONCE)
        sizes = np.full(window.num_rows, fixed)
        for column in varying:
            sizes += row_bytes(column.slice(start, _ROWS_AT_ONCE))
        _check_row(float(sizes.max(initial=0.0)), most_of_a_row)
        yield from _cut_at(window, sizes)


def _cut_at(window: pa.RecordBatch, sizes: Sizes) -> Iterator[pa.RecordBatch]:
    until = np.cumsum(sizes)
    start, done = 0, 0.0
    while True:
        end = int(np.searchsorted(until, done + SLICE_BYTES, side="right"))
        end = max(end, start + 1)
        yield window.slice(start, end - start)
        if end >= window.num_rows:
            return
        start, done = end, float(until[end - 1])


def _check_row(size: float, most: int) -> None:
    if size > most:
        raise ProtocolError(
            f"a row has {format_bytes(size)} once it is decoded, and at most {format_bytes(most)} "
            "are taken of this message; send its values as they are, not as a dictionary's"
        )


def _without_the_rest(column: pa.Array) -> pa.Array:
    """The same rows. A cast of a slice of lists would decode the elements of all lists."""
    kind = column.type
    buffers: list[pa.Buffer] = []
    if types.is_struct(kind):
        children = [column.field(i) for i in range(kind.num_fields)]
    elif types.is_fixed_size_list(kind):
        size = kind.list_size
        children = [column.values.slice(column.offset * size, len(column) * size)]
    elif is_list(kind) and len(column):
        offsets = numbers_of(column.offsets)
        first, last = int(offsets[0]), int(offsets[-1])
        children = [column.values.slice(first, last - first)]
        buffers = [pa.py_buffer(offsets - offsets[0])]
    else:
        return column
    children = [_without_the_rest(child) for child in children]
    validity = column.is_valid().buffers()[1] if column.null_count else None
    return pa.Array.from_buffers(kind, len(column), [validity, *buffers], children=children)
