"""A block is sent without a copy; its tag is within its bounds, or refused."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.errors import ProtocolError
from mrflight.ids import MAX_PARTITIONS
from mrflight.shuffle.wire.block import (
    WIRE_SCHEMA,
    Block,
    BlockTag,
    decode_block,
    encode_block,
    from_wire,
    to_wire,
)
from tests.support.clusters.blocks import PLAIN, batch_of
from tests.support.suite.examples import some_of

examples = settings(max_examples=some_of(200), derandomize=True)


def test_a_block_is_sent_without_a_copy() -> None:
    block = encode_block([batch_of(pa.array([1, 2, 3]))], PLAIN)
    message = to_wire(block)
    assert message.schema == WIRE_SCHEMA
    received = from_wire(message, BlockTag(0, 3, block.xxh3))
    assert received == block
    assert received.body.address == block.body.address


def test_a_slice_of_a_message_is_the_block_in_it() -> None:
    block = encode_block([batch_of(pa.array([1, 2, 3]))], PLAIN)
    padded = pa.py_buffer(b"12345" + block.body.to_pybytes())
    message = to_wire(block._replace(body=padded)).slice(5)
    received = from_wire(message, BlockTag(0, 3, block.xxh3))
    assert decode_block(received).column(0).to_pylist() == [1, 2, 3]


def test_a_message_without_bytes_is_refused() -> None:
    with pytest.raises(ProtocolError, match="must have bytes"):
        from_wire(to_wire(Block.of(0, pa.py_buffer(b""))), BlockTag(0, 0, 0))


@examples
@given(st.integers(0, MAX_PARTITIONS - 1), st.integers(0, 2**40), st.integers(0, 2**64 - 1))
def test_a_tag_comes_back(partition: int, rows: int, xxh3: int) -> None:
    tag = BlockTag(partition, rows, xxh3)
    encoded = tag.encode()
    assert encoded == b"".join(
        number.to_bytes(size, "little")
        for number, size in ((3, 4), (partition, 4), (rows, 8), (xxh3, 8))
    )
    assert BlockTag.decode(pa.py_buffer(encoded)) == tag


@examples
@given(
    st.none()
    | st.binary(max_size=32)
    | st.binary(min_size=23, max_size=23).map(lambda behind: b"\x03" + behind)
    | st.tuples(st.integers(0, 2**18), st.integers(0, 2**41), st.integers(0, 2**64 - 1)).map(
        lambda numbers: BlockTag(*numbers).encode()
    )
)
def test_any_bytes_are_a_tag_within_bounds_or_refused(data: bytes | None) -> None:
    try:
        tag = BlockTag.decode(None if data is None else pa.py_buffer(data))
    except ProtocolError:
        return
    assert 0 <= tag.partition < MAX_PARTITIONS
    assert 0 <= tag.rows <= 2**40
    assert 0 <= tag.xxh3 < 2**64


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (BlockTag(1, 1, 1).encode()[:-1], "24 bytes"),
        (b"\x01" + BlockTag(1, 1, 1).encode()[1:16], "24 bytes"),  # the length of version 1
        (b"\x02" + BlockTag(1, 1, 1).encode()[1:], "version 3, not 2"),
        (BlockTag(MAX_PARTITIONS, 1, 1).encode(), "partition 100000"),
        (BlockTag(1, 2**40 + 1, 1).encode(), "rows"),
    ],
)
def test_a_wrong_tag_is_refused_with_the_reason(data: bytes, says: str) -> None:
    with pytest.raises(ProtocolError, match=says):
        BlockTag.decode(pa.py_buffer(data))
