"""A block's hash finds bytes that have changed since they were written."""

from __future__ import annotations

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.errors import CorruptBlockError
from mrflight.shuffle.wire.block import Block, check_hash, decode_block, encode_block, ipc_options
from tests.support.clusters.blocks import COLUMNS, PLAIN, at_offset, batch_of
from tests.support.suite.examples import some_of
from tests.support.suite.messages import refused


def flipped(body: pa.Buffer, bit: int) -> pa.Buffer:
    data = bytearray(body)
    data[bit // 8] ^= 1 << bit % 8
    return pa.py_buffer(data)


def bits_found(block: Block) -> int:
    """Return the number of bits of a block, after checking that flipping any one is found."""
    bits: int = 8 * block.body.size
    for bit in range(bits):
        with pytest.raises(CorruptBlockError, match=f"{block.xxh3:016x} were written"):
            decode_block(block._replace(body=flipped(block.body, bit)))
    return bits


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_every_single_flipped_bit_of_a_block_is_found(compression: str) -> None:
    block = encode_block([batch_of(pa.array([1, None]))], ipc_options(compression))
    assert decode_block(block).column(0).to_pylist() == [1, None]
    assert bits_found(block) > 8 * 200


@settings(max_examples=some_of(300), derandomize=True)
@given(st.data())
def test_any_flipped_bit_of_any_block_is_found(data: st.DataObject) -> None:
    rows = data.draw(st.integers(0, 3_000), "rows")
    compression = data.draw(st.sampled_from(["none", "lz4", "zstd"]), "compression")
    batch = batch_of(pa.array(range(rows), pa.int64()), pa.array(["some text"] * rows))
    block = encode_block([batch], ipc_options(compression))
    bit = data.draw(st.integers(0, 8 * block.body.size - 1), "bit")
    with pytest.raises(CorruptBlockError, match=f"{block.xxh3:016x} were written"):
        decode_block(block._replace(body=flipped(block.body, bit)))
    with pytest.raises(CorruptBlockError):
        check_hash(block._replace(body=flipped(block.body, bit)))
    assert decode_block(block).equals(batch)


@pytest.mark.parametrize("offset", range(8))
def test_a_hash_does_not_depend_on_the_address(offset: int) -> None:
    block = encode_block([batch_of(*COLUMNS)], PLAIN)
    assert block.xxh3 == xxhash.xxh3_64_intdigest(block.body.to_pybytes(), seed=0)
    assert Block.of(block.rows, at_offset(block.body, offset)) == block
    check_hash(block._replace(body=at_offset(block.body, offset)))


def test_an_error_of_a_corrupt_block_says_what_differs_and_what_to_do() -> None:
    block = encode_block([batch_of(pa.array([1]))], PLAIN)
    with refused(CorruptBlockError) as caught:
        decode_block(block._replace(xxh3=7))
    assert caught.value.retryable
