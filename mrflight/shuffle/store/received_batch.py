"""Checks record batches that plain clients send."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyarrow import types

from mrflight.errors import ProtocolError


def check_received(batch: pa.RecordBatch, *, takes_compressed: bool) -> None:
    """Raise ProtocolError for a batch that is not valid Arrow, or that was sent compressed.

    A compressed message of some KB may become any number of GB, and Arrow inflates it before it is
    seen. So a stream may do that once, and not again and again. Buffers that Arrow has inflated are
    its own; those of other messages are parts of the message.
    """
    buffers = [buffer for column in batch.columns for buffer in _buffers(column)]
    if not takes_compressed and buffers and all(buffer.parent is None for buffer in buffers):
        raise ProtocolError(
            "a put's record batches are compressed; send them without compression, or start the "
            "data server with --compressed-puts if all its clients are trusted"
        )
    try:
        batch.validate(full=True)
    except pa.ArrowException as error:
        raise ProtocolError(f"a put has rows that are not valid Arrow data: {error}") from error


def _buffers(array: pa.Array) -> Iterator[pa.Buffer]:
    yield from (buffer for buffer in array.buffers() if buffer is not None and buffer.size)
    if types.is_dictionary(array.type):
        yield from _buffers(array.dictionary)
