"""Which batches are refused because they were compressed, or hide what is kept with them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mrflight.errors import ProtocolError
from mrflight.shuffle.store import received_batch
from mrflight.shuffle.store.received_batch import (
    check_block_message,
    check_received,
    message_bytes,
)
from mrflight.shuffle.store.tail_partition import TailPiece
from mrflight.shuffle.wire.block import PACKED_BYTES, WIRE_SCHEMA, Block, ipc_options, to_wire
from tests.support.faults.inflating import inflating_stream
from tests.support.suite.messages import refused

WORDS = pa.array(["x", "y", "x"])
WITHIN: dict[str, pa.Array] = {
    "alone": WORDS.dictionary_encode(),
    "in lists": pa.array([["x"], [], ["y"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    "in structs": pa.StructArray.from_arrays([WORDS.dictionary_encode()], ["word"]),
    "in maps": pa.MapArray.from_arrays(
        [0, 1, 2, 3], pa.array([1, 2, 3]), WORDS.dictionary_encode()
    ),
}


def received(batch: pa.RecordBatch, compression: str = "none", **more: bool) -> pa.RecordBatch:
    """Return a batch as Arrow reads it from a message."""
    return read([batch], compression, **more)[-1]


def read(batches: list[pa.RecordBatch], compression: str, **more: bool) -> list[pa.RecordBatch]:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(
        compression=ipc_options(compression).compression,
        **more,
    )
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return list(pa.ipc.open_stream(sink.getvalue()))


def test_a_plain_buffer_hides_no_compressed_ones() -> None:
    batch = pa.ipc.open_stream(inflating_stream(1_000)).read_next_batch()
    with refused(ProtocolError):
        check_received(batch, takes_compressed=False)
    check_received(batch, takes_compressed=True)


@pytest.mark.parametrize("name", WITHIN)
def test_dictionaries_are_refused_by_what_they_inflate_to(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The indices are not compressed: Arrow has joined the dictionaries of some messages."""
    column = WITHIN[name]
    batch = pa.RecordBatch.from_arrays([column], ["c"])
    check_received(received(batch), takes_compressed=False)
    with pytest.raises(ProtocolError):
        check_received(received(batch, "lz4"), takes_compressed=False)
    joined = [
        pa.RecordBatch.from_arrays(
            [pa.DictionaryArray.from_arrays(pa.array([0, n - 1]), pa.array([*"abcdef"][:n]))], ["c"]
        )
        for n in (2, 4)
    ]
    first, second = read(joined, "none", emit_dictionary_deltas=True)
    check_received(first, takes_compressed=False)
    check_received(second, takes_compressed=False)
    monkeypatch.setattr(received_batch, "MAX_ROW_BYTES", 10)
    check_received(first, takes_compressed=False)
    with pytest.raises(ProtocolError, match="compressed"):
        check_received(second, takes_compressed=False)


def test_the_message_of_a_block_is_plain_and_little_more_than_it() -> None:
    block = Block.of(1, pa.py_buffer(bytes(2 * PACKED_BYTES)))
    check_block_message(received(to_wire(block)))
    check_block_message(received(pa.record_batch([pa.array([], pa.uint8())], schema=WIRE_SCHEMA)))
    with refused(ProtocolError):
        check_block_message(received(to_wire(block), "zstd"))
    hidden = pa.record_batch(
        {"block": to_wire(block).column(0), "more": pa.array(range(block.body.size))}
    )
    sent = received(hidden).select(["block"])
    with refused(ProtocolError):
        check_block_message(sent)
    assert sent.nbytes < TailPiece.of(0, 1, sent).size_bytes == message_bytes(sent)
