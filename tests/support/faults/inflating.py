"""Arrow messages of some KB that inflate to many MB."""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from mrflight.shuffle.wire.block import ipc_options

SCHEMA = pa.schema([("n", pa.int64()), ("word", pa.string())])
_ZSTD = b"\x28\xb5\x2f\xfd"
"""What a compressed buffer has behind its size."""


class IpcMessage(NamedTuple):
    """The header and the body of a message, as Flight sends them one after the other."""

    header: bytes
    body: bytes


def inflating_batch(rows: int) -> pa.RecordBatch:
    """Return zeros, and empty words but for the last: 12 bytes a row, and one more."""
    zeros = pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(bytes(8 * rows))])
    offsets = np.zeros(rows + 1, np.int32)
    offsets[-1] = 1
    words = pa.Array.from_buffers(
        pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(b"x")]
    )
    return pa.RecordBatch.from_arrays([zeros, words], schema=SCHEMA)


def inflating_stream(rows: int) -> pa.Buffer:
    """Return a stream of `inflating_batch` that is compressed, but for the one buffer of the word.

    Each buffer of a message says for itself whether it is compressed.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA, options=ipc_options("zstd")) as stream:
        stream.write_batch(inflating_batch(rows))
    written = sink.getvalue().to_pybytes()
    word = struct.pack("<q", 1) + _ZSTD
    assert written.count(word) == 1
    return pa.py_buffer(written.replace(word, struct.pack("<q", -1) + b"x000"))


def messages_of(stream: pa.Buffer) -> list[IpcMessage]:
    """Return the messages of a stream."""
    return [
        IpcMessage(each.metadata.to_pybytes(), each.body.to_pybytes() if each.body else b"")
        for each in pa.ipc.MessageReader.open_stream(stream)
    ]
