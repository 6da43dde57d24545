"""Benchmarks of encoding a block for the wire, and decoding it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from mrflight.shuffle.wire.block import decode_block, encode_block, ipc_options

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

COMPRESSIONS = ["none", "lz4", "zstd"]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_encode(benchmark: BenchmarkFixture, clicks: pa.RecordBatch, compression: str) -> None:
    options = ipc_options(compression)
    block = benchmark(encode_block, [clicks], options)
    assert block.rows == clicks.num_rows


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_decode(benchmark: BenchmarkFixture, clicks: pa.RecordBatch, compression: str) -> None:
    block = encode_block([clicks], ipc_options(compression))
    assert benchmark(decode_block, block).equals(clicks)
