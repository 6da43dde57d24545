"""Aggregates of expressions, which maps compute before the shuffle, give the rows of DuckDB."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mrflight
from mrflight.compute.sql import engine
from mrflight.errors import ColumnNotFoundError, JobFileError
from tests.support.suite.messages import refused

ROWS = 5000
AGGREGATES = {
    "total": "sum(price * n)",
    "mean": "mean(w * 2 + 1)",
    "large": "count(case when w > 0.5 then 1 end)",
    "users": "count(distinct user-id)",
    "high": "quantile(price * n, 0.9)",
    "near": "approx_median(w * n)",
    "spread": "stddev_pop(w * n)",
    "rows": "count(1)",
    "any": "bool_or(w > 0.999)",
    "least": "min(n)",
}
QUERY = """
select {key} sum(price::bigint * n)::bigint as total, avg(w * 2 + 1) as mean,
       count(case when w > 0.5 then 1 end) as large, count(distinct "user-id") as users,
       quantile_cont(price::bigint * n, 0.9) as high, median(w * n) as near,
       stddev_pop(w * n) as spread, count(1) as rows, bool_or(w > 0.999) as any, min(n) as least
from '{path}' {group}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    random = np.random.default_rng(1)
    rows = pa.table(
        {
            "k": random.integers(0, 50, ROWS),
            "price": pa.array(random.integers(0, 2**31 - 1, ROWS), pa.int32()),
            "n": pa.array(random.integers(0, 200, ROWS), pa.int16()),
            "user-id": random.integers(0, 50, ROWS),
            "w": random.random(ROWS),
            "unused": ["?"] * ROWS,
        }
    )
    pq.write_table(rows, tmp_path / "rows.parquet", row_group_size=1000)
    return tmp_path / "rows.parquet"


@pytest.mark.parametrize("by", ["files", "a function"])
def test_expressions_match_sql(path: Path, by: str) -> None:
    rows = mrflight.read(str(path))
    if by == "a function":  # the columns are known only when it runs
        rows = rows.map(lambda batch: batch).filter("k >= 0")
    grouped = rows.group_by("k").agg(AGGREGATES) if by != "files" else rows.agg(AGGREGATES)
    result = grouped.collect()
    assert result.schema == grouped.schema
    keys = {"key": "k,", "group": "group by k"} if by != "files" else {"key": "", "group": ""}
    with duckdb.connect() as database:
        wanted = database.sql(QUERY.format(path=path, **keys)).to_arrow_table()
    found, expected = (
        sorted(tuple(row.values()) for row in table.to_pylist()) for table in (result, wanted)
    )
    assert len(found) == len(expected)
    for row, other in zip(found, expected, strict=True):
        near = result.column_names.index("near")
        assert row[near] == pytest.approx(other[near], rel=0.01)
        assert [*row[:near], *row[near + 1 :]] == pytest.approx(
            [*other[:near], *other[near + 1 :]], rel=1e-12
        )


def test_only_the_columns_of_expressions_are_read_and_sent(path: Path) -> None:
    plan = str(mrflight.read(str(path)).group_by("k").agg(x="sum(price * n)").explain())
    assert "columns:      k, price, n\n" in plan
    assert "computes:     price * n\n" in plan


def test_mistakes_name_the_aggregate(path: Path) -> None:
    grouped = mrflight.read(str(path)).group_by("k")
    with refused(ColumnNotFoundError):
        _ = grouped.agg(x="sum(prise * n)").schema
    with refused(JobFileError):
        _ = grouped.agg(x="bool_and(price * n)").schema


def test_without_datafusion_expressions_say_what_to_install(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "find_spec", lambda name: None)
    grouped = mrflight.read(str(path)).group_by("k")
    assert grouped.agg(x="count(distinct user-id)").schema.names == ["k", "x"]
    with refused(JobFileError):
        _ = grouped.agg(x="sum(price * n + 0)").schema
