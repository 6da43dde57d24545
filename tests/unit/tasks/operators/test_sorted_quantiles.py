"""Exact quantiles equal those of DuckDB, whether groups fit into memory or are sorted in files."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from mrflight.config.aggregates import parse_aggregate
from mrflight.config.sort_key import ascending
from mrflight.tasks.operators.external_sort import ExternalSort
from mrflight.tasks.reducer import ReduceSpec
from tests.support.queries.reductions import LITTLE, MUCH, reduce

ROWS = 4200
CALLS = {
    "low": "quantile(v, 0.03)",
    "middle": "median(v)",
    "high": "quantile(v, 0.999)",
    "other": "median(w)",
    "n": "count(v)",
    "distinct": "count_distinct(w)",
    "least": "min(w)",
}
QUERY = """
select {key} quantile_cont(v, 0.03) as low, median(v) as middle, quantile_cont(v, 0.999) as high,
       median(w) as other, count(v) as n, count(distinct w) as distinct, min(w) as least
from given {group}
"""


def table_of(keys: npt.NDArray[Any]) -> pa.Table:
    random = np.random.default_rng(1)
    values = random.integers(-1000, 1000, ROWS)
    floats = random.normal(size=ROWS)
    return pa.table(
        {
            "value": keys,  # the operator has such a column of its own
            "v": pa.array(values, mask=values % 7 == 0),
            "w": pa.array(floats, mask=floats > 2),
        }
    )


@pytest.fixture
def sorts(monkeypatch: pytest.MonkeyPatch) -> list[ExternalSort]:
    """Record the sorts of quantiles."""
    made: list[ExternalSort] = []
    make = ExternalSort.__init__

    def noted(self: ExternalSort, *arguments: Any) -> None:
        made.append(self)
        make(self, *arguments)

    monkeypatch.setattr(ExternalSort, "__init__", noted)
    return made


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


@pytest.mark.parametrize("distinct", [0, 3, 2000])
def test_quantiles_match_sql(distinct: int, folder: Path, sorts: list[ExternalSort]) -> None:
    """A large group among small ones is sorted in files; without keys all rows are a group."""
    given = table_of(np.random.default_rng(2).integers(0, max(1, distinct), ROWS) ** 2 // 700)
    aggregates = tuple(parse_aggregate(name, text) for name, text in CALLS.items())
    with duckdb.connect() as database:
        database.register("given", given)
        parts = (
            {"key": "value,", "group": "group by value"} if distinct else {"key": "", "group": ""}
        )
        wanted = rows_of(database.sql(QUERY.format(**parts)).to_arrow_table())
    for memory_bytes in (LITTLE, MUCH):
        reduce_spec = ReduceSpec(("value",) if distinct else (), aggregates)
        result = reduce(reduce_spec, given, memory_bytes, folder)
        for found, expected in zip(rows_of(result), wanted, strict=True):
            assert found == pytest.approx(expected, rel=1e-12, nan_ok=True)
        assert bool(sorts) == (memory_bytes == LITTLE and distinct < 2000)
        sorts.clear()
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    "keys",
    [
        pa.nulls(ROWS),
        pa.array([0.0, -0.0, math.nan] * (ROWS // 3)),
        pa.array([None, "a"] * (ROWS // 2)),
        pa.array([bytes(16)] * ROWS, pa.binary(16)).cast(pa.uuid()),
    ],
    ids=lambda keys: str(keys.type),
)
def test_keys_of_a_large_group_may_have_any_type(keys: pa.Array, folder: Path) -> None:
    table = pa.table({"k": keys, "v": np.arange(ROWS) % 600, "row": np.arange(ROWS)})
    aggregates = (parse_aggregate("x", "median(v)"), parse_aggregate("n", "count(*)"))
    reduce_spec = ReduceSpec(("k",), aggregates)
    little, much = (reduce(reduce_spec, table, size, folder) for size in (LITTLE, MUCH))
    assert little.schema == much.schema
    assert sorted(map(str, little.to_pylist())) == sorted(map(str, much.to_pylist()))


@pytest.mark.slow
def test_a_sorted_result_may_be_sorted_in_files_as_well(folder: Path) -> None:
    """Both sorts write files at the same time."""
    keys = np.repeat(np.arange(ROWS // 2), 2)
    keys[: ROWS // 2] = 7
    table = pa.table({"k": keys, "v": np.arange(ROWS)})
    reduce_spec = ReduceSpec(
        ("k",), (parse_aggregate("x", "median(v)"),), sort_by=ascending(["x", "k"])
    )
    little, much = (reduce(reduce_spec, table, size, folder) for size in (LITTLE // 4, MUCH))
    assert little == much
