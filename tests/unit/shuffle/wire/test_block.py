"""Blocks are decoded to what was encoded, at whatever address their bytes are."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mrflight.shuffle.wire.block import decode_block, encode_block, ipc_options
from tests.support.clusters.blocks import COLUMNS, PLAIN, at_offset, batch_of


def rewritten(batch: pa.RecordBatch, compression: str = "none") -> pa.RecordBatch:
    decoded = decode_block(encode_block([batch], ipc_options(compression)))
    decoded.validate(full=True)
    return decoded


def buffers_of(array: pa.Array) -> list[pa.Buffer]:
    return [buffer for buffer in array.buffers() if buffer is not None and buffer.size]


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type))
def test_every_column_comes_back(column: pa.Array, compression: str) -> None:
    batch = batch_of(column)
    for rows in (batch, batch.slice(1, 2), batch.slice(0, 0)):
        decoded = rewritten(rows, compression)
        assert decoded.schema == batch.schema
        assert decoded.equals(rows)


def test_all_columns_come_back_together() -> None:
    batch = batch_of(*COLUMNS)
    assert rewritten(batch).equals(batch)


def test_a_batch_without_columns_comes_back() -> None:
    assert rewritten(pa.record_batch({})).num_columns == 0


def test_several_batches_become_one_block_in_their_order() -> None:
    batches = [
        batch_of(pa.array([1, 2])),
        batch_of(pa.array([], pa.int64())),
        batch_of(pa.array([3])),
    ]
    block = encode_block(batches, PLAIN)
    assert block.rows == 3
    assert decode_block(block).column(0).to_pylist() == [1, 2, 3]


def test_a_slice_is_encoded_without_the_rows_around_it() -> None:
    batch = batch_of(pa.array(range(100_000)), pa.array(["x" * 10] * 100_000))
    assert encode_block([batch.slice(50_000, 10)], PLAIN).body.size < 5_000


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compression_makes_a_block_smaller(compression: str) -> None:
    batch = batch_of(pa.array(["the same text"] * 10_000))
    plain = encode_block([batch], PLAIN).body.size
    assert encode_block([batch], ipc_options(compression)).body.size < plain / 4


@pytest.mark.parametrize("offset", range(8))
def test_a_block_at_any_address_is_read_to_aligned_columns(offset: int) -> None:
    batch = batch_of(*COLUMNS)
    block = encode_block([batch], PLAIN)
    moved = at_offset(block.body, offset)
    assert moved.address % 8 == offset
    decoded = decode_block(block._replace(body=moved))
    decoded.validate(full=True)
    assert decoded.equals(batch)
    assert all(
        buffer.address % 8 == 0 for column in decoded.columns for buffer in buffers_of(column)
    )


def test_an_aligned_block_is_read_without_a_copy() -> None:
    block = encode_block([batch_of(pa.array(range(10_000)))], PLAIN)
    body = at_offset(block.body, 0)
    (values,) = buffers_of(decode_block(block._replace(body=body)).column(0))
    assert body.address < values.address < body.address + body.size
