"""Checks record batches that clients send, as far as Arrow lets them be seen.

Arrow inflates a compressed message of some KB to any number of GB before it is seen. So a stream
may do that once, and not again and again. Buffers that Arrow has inflated are its own; those of
other messages are parts of the message.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyarrow import types

from mrflight.errors import ProtocolError
from mrflight.shuffle.store.canonical_slices import MAX_ROW_BYTES
from mrflight.shuffle.wire.block import PACKED_BYTES

_COMPRESSED = (
    "a put's record batches are compressed; send them without compression, or start the data "
    "server with --compressed-puts if all its clients are trusted"
)


def check_received(batch: pa.RecordBatch, *, takes_compressed: bool) -> None:
    """Raise ProtocolError for a batch that is not valid Arrow, or of which a part was compressed.

    A dictionary to which later messages have added values is joined by Arrow, so that dictionaries
    are refused by their size only.
    """
    if not takes_compressed and any(map(_inflated_bytes, batch.columns)):
        raise ProtocolError(_COMPRESSED)
    try:
        batch.validate(full=True)
    except pa.ArrowException as error:
        raise ProtocolError(f"a put has rows that are not valid Arrow data: {error}") from error
    dictionaries = (each for column in batch.columns for each in _dictionaries(column))
    if not takes_compressed and sum(map(_inflated_bytes, dictionaries)) > MAX_ROW_BYTES:
        raise ProtocolError(_COMPRESSED)


def check_block_message(batch: pa.RecordBatch) -> None:
    """Raise ProtocolError for the message of a block that was compressed, or hides other bytes.

    A large block is kept with the whole message, of which only the block would be counted.
    """
    if any(map(_inflated_bytes, batch.columns)):
        raise ProtocolError("the messages of a stream of blocks must not be compressed")
    size, whole = batch.nbytes, message_bytes(batch)
    if whole - size > max(size, PACKED_BYTES):
        raise ProtocolError(f"a block of {size} bytes is put in a message of {whole} bytes")


def message_bytes(batch: pa.RecordBatch) -> int:
    """Return the size of the largest memory that a buffer of a batch is a part of."""
    return max((_whole(each) for column in batch.columns for each in column.buffers()), default=0)


def _inflated_bytes(array: pa.Array) -> int:
    """Return the bytes of buffers that are not parts of the message, without dictionaries."""
    return sum(each.size for each in array.buffers() if each is not None and each.parent is None)


def _whole(buffer: pa.Buffer | None) -> int:
    """Return the size of the message that a buffer is a part of."""
    size = 0
    while buffer is not None:
        size, buffer = buffer.size, buffer.parent
    return size


def _dictionaries(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the dictionaries of an array and of the values within it."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        yield from _dictionaries(array.storage)
    elif types.is_dictionary(kind):
        yield array.dictionary
        yield from _dictionaries(array.dictionary)
    elif types.is_struct(kind) or types.is_union(kind):
        for place in range(kind.num_fields):
            yield from _dictionaries(array.field(place))
    elif types.is_map(kind):
        yield from _dictionaries(array.keys)
        yield from _dictionaries(array.items)
    elif types.is_nested(kind) or types.is_run_end_encoded(kind):  # lists
        yield from _dictionaries(array.values)
