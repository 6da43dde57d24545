"""Benchmarks of grouping and aggregating the rows of a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from mrflight.config.aggregates import parse_aggregate
from mrflight.tasks.operators.grouping import group

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture


@pytest.mark.parametrize(("key", "groups"), [("url", 20_000), ("day", 365)])
def test_group(benchmark: BenchmarkFixture, clicks: pa.RecordBatch, key: str, groups: int) -> None:
    table = pa.Table.from_batches([clicks])
    aggregates = [parse_aggregate("total", "sum(weight)"), parse_aggregate("rows", "count(*)")]
    result = benchmark(group, table, [key], aggregates)
    assert groups * 0.98 < result.num_rows <= groups
