"""Cuts record batches of plain clients before they are decoded: see `decoded_size`."""

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
"""Bytes that are decoded at a time. To encode them as a block briefly takes three times as much."""

MAX_ROW_BYTES = 64 * 2**20
"""The size of a decoded row, unless the message that it came in was larger."""

_ROWS_AT_ONCE = 2**18
"""Rows whose sizes are computed at a time."""


def canonical_slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield all rows of ``batch`` in order, in their canonical layout; one batch if there are none.

    Each slice has at most `SLICE_BYTES`, or one row; types that are never decoded do not count.
    Raises ProtocolError for a row that has more than `MAX_ROW_BYTES` and more than its message, and
    for a slice of types that are never decoded that does.
    """
    schema = canonical_schema(batch.schema)
    # Bytes that columns of a message share are counted for each column, as each encodes them.
    if batch.nbytes <= SLICE_BYTES and batch.schema.equals(schema):
        yield to_canonical(batch, schema)
        return
    max_bytes = max(_received_bytes(batch), MAX_ROW_BYTES)
    for piece in _cut(batch, max_bytes):
        columns = [_compact(column) for column in piece.columns]
        compact = pa.RecordBatch.from_arrays(columns, schema=batch.schema) if columns else piece
        rows = to_canonical(compact, schema)
        if rows.nbytes > max_bytes:  # unions and list views
            raise ProtocolError(
                f"columns that share bytes have {format_bytes(rows.nbytes)} together, and at most "
                f"{format_bytes(max_bytes)} are accepted from this message; send each with bytes "
                "of its own"
            )
        yield rows


def _received_bytes(batch: pa.RecordBatch) -> int:
    """Return the bytes of a message, each counted once, because its buffers may overlap.

    Dictionaries within other values are not counted.
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


def _cut(batch: pa.RecordBatch, max_row_bytes: int) -> Iterator[pa.RecordBatch]:
    varying = [column for column in batch.columns if fixed_bytes(column.type) is None]
    fixed = sum(fixed_bytes(column.type) or 0.0 for column in batch.columns)
    if not varying:
        _check_row(fixed, max_row_bytes)
        rows = max(1, int(SLICE_BYTES // fixed)) if fixed else max(1, batch.num_rows)
        for start in range(0, max(1, batch.num_rows), rows):
            yield batch.slice(start, rows)
        return
    for start in range(0, max(1, batch.num_rows), _ROWS_AT_ONCE):
        window = batch.slice(start, _ROWS_AT_ONCE)
        sizes = np.full(window.num_rows, fixed)
        for column in varying:
            sizes += row_bytes(column.slice(start, _ROWS_AT_ONCE))
        _check_row(float(sizes.max(initial=0.0)), max_row_bytes)
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


def _check_row(size: float, max_row_bytes: int) -> None:
    if size > max_row_bytes:
        raise ProtocolError(
            f"a row has {format_bytes(size)} once it is decoded, and at most "
            f"{format_bytes(max_row_bytes)} are accepted from this message; send its values "
            "without a dictionary"
        )


def _compact(column: pa.Array) -> pa.Array:
    """Return the same rows without other elements of lists, which a cast would decode as well."""
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
    children = [_compact(child) for child in children]
    validity = column.is_valid().buffers()[1] if column.null_count else None
    return pa.Array.from_buffers(kind, len(column), [validity, *buffers], children=children)
