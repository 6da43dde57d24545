"""Benchmarks of hashing keys, and placing rows in partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from mrflight.compute import kernel

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

PARTITIONS = 64


@pytest.mark.parametrize("key", [("weight",), ("url",), ("url", "day")], ids="+".join)
def test_hash_rows(
    benchmark: BenchmarkFixture, clicks: pa.RecordBatch, key: tuple[str, ...]
) -> None:
    columns = [clicks.column(name) for name in key]
    hashes = benchmark(kernel.hash_rows, columns)
    assert len(hashes) == clicks.num_rows


def test_partition_ids(benchmark: BenchmarkFixture, clicks: pa.RecordBatch) -> None:
    ids = benchmark(kernel.partition_ids, [clicks.column("url")], PARTITIONS)
    assert len(ids) == clicks.num_rows


@pytest.mark.usefixtures("needs_kernel")
def test_scatter(benchmark: BenchmarkFixture, clicks: pa.RecordBatch) -> None:
    ids = kernel.partition_ids([clicks.column("url")], PARTITIONS)

    def place_all() -> int:
        rows = kernel.scatter(clicks.schema, PARTITIONS, 64 << 20, 1 << 20)
        assert rows is not None
        rows.add(clicks, ids)
        return sum(rows.take(partition).num_rows for partition in range(PARTITIONS))

    assert benchmark(place_all) == clicks.num_rows


def test_hash_table(benchmark: BenchmarkFixture, clicks: pa.RecordBatch) -> None:
    hashes = kernel.hash_rows([clicks.column("url")])
    few = hashes.slice(0, 1_000)

    def match() -> int:
        table = kernel.hash_table(hashes)
        return sum(len(left) for left, _ in table.pairs(few, 10_000, only_first=True))

    assert benchmark(match) == len(few)
