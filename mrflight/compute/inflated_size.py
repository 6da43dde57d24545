"""What compressed Arrow IPC messages inflate to, computed without inflating them.

Each compressed buffer begins with the size that it inflates to, which Arrow allocates before it
looks at the rest: a message of 16 KB may say 640 MB. Arrow has no function that tells, so the
buffers are found here, in the metadata that Arrow has verified (Message.fbs and Schema.fbs of the
format). Each of them says for itself whether it is compressed, so that all are looked at.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

_INT16, _INT32, _INT64 = struct.Struct("<H"), struct.Struct("<i"), struct.Struct("<q")
_BUFFER = struct.Struct("<qq")
"""The offset and the length of a buffer in the body of its message."""
_SIZE = _INT64
"""What a compressed buffer begins with; -1 says that the rest is not compressed."""
_HEADER, _ROWS, _BUFFERS, _COMPRESSION, _DATA = 2, 0, 2, 3, 1
"""The fields of a Message, of a RecordBatch, and of a DictionaryBatch that has one."""
_OLD_COMPRESSION = b"ARROW:experimental_compression"
"""How Arrow 0.17 said that a message is compressed, which Arrow still inflates."""


class Declared(NamedTuple):
    """What a message of rows, or of a dictionary, says of itself."""

    message: pa.ipc.Message
    rows: int
    inflated_bytes: int
    """The bytes that its compressed buffers inflate to; 0 if none is compressed."""


def declared(stream: pa.Buffer) -> Iterator[Declared]:
    """Yield what the messages of an IPC stream say, from that of the schema on.

    Raises Arrow's errors for bytes that are no messages, and ArrowInvalid for metadata that cannot
    be followed.
    """
    source = pa.BufferReader(stream)
    while True:
        try:
            message = pa.ipc.read_message(source)  # 1 us; to open a `MessageReader` takes 6
        except EOFError:
            return
        yield _declared(message)


def _declared(message: pa.ipc.Message) -> Declared:
    if message.type not in ("record batch", "dictionary"):
        return Declared(message, 0, 0)
    metadata = memoryview(message.metadata)
    try:
        batch = _table(metadata, _field(metadata, _root(metadata), _HEADER))
        if message.type == "dictionary":
            batch = _table(metadata, _field(metadata, batch, _DATA))
        at = _field(metadata, batch, _ROWS)
        rows = _INT64.unpack_from(metadata, at)[0] if at else 0
        return Declared(message, rows, _inflated_bytes(message, metadata, batch))
    except (struct.error, IndexError) as error:
        raise pa.ArrowInvalid(f"a message has metadata that cannot be read: {error}") from error


def _inflated_bytes(message: pa.ipc.Message, metadata: memoryview, batch: int) -> int:
    if not _field(metadata, batch, _COMPRESSION):
        if _OLD_COMPRESSION in bytes(metadata):
            raise pa.ArrowInvalid("a message is compressed in the way of Arrow 0.17")
        return 0
    at = _field(metadata, batch, _BUFFERS)
    if not at:
        return 0
    buffers = _table(metadata, at)
    (count,) = _INT32.unpack_from(metadata, buffers)
    body = memoryview(message.body)
    inflated = 0
    for place in range(count):
        start, size = _BUFFER.unpack_from(metadata, buffers + 4 + place * _BUFFER.size)
        if size:
            inflated += max(0, _SIZE.unpack_from(body, start)[0])
    return inflated


def _root(metadata: memoryview) -> int:
    return int(_INT32.unpack_from(metadata, 0)[0])


def _table(metadata: memoryview, at: int) -> int:
    """Return where the table or vector begins that a field refers to."""
    return at + int(_INT32.unpack_from(metadata, at)[0])


def _field(metadata: memoryview, table: int, number: int) -> int:
    """Return where a field of a table is; 0 if the table lacks it."""
    fields = table - int(_INT32.unpack_from(metadata, table)[0])
    entry = 4 + 2 * number
    if entry >= _INT16.unpack_from(metadata, fields)[0]:
        return 0
    offset = int(_INT16.unpack_from(metadata, fields + entry)[0])
    return table + offset if offset else 0
