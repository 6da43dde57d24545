"""``examples/tpch``: every job gives what DuckDB gives for its query."""

from __future__ import annotations

import importlib.util
import math
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mrflight
from tests.support.experiments import TPCH, load

SCALE = 0.1
NAMES = tuple(f"q{number}" for number in (1, 3, 4, 5, 6, 10, 12, 13, 14, 18, 21))

QUICK = ("q3", "q13", "q21")
"""A join with a limit, an outer join and two aggregations, and SQL with subqueries."""

NEAR = 1e-12
"""Relative, of doubles: a mean is a quotient, and who rounds what before it is not said."""


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example with its data."""
    generate = load(TPCH / "generate.py")
    try:
        generate.generator()
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    if importlib.util.find_spec("datafusion") is None:
        pytest.skip("pip install 'mrflight[sql]'")
    folder = tmp_path_factory.mktemp("tpch")
    for job in TPCH.glob("q*.toml"):
        shutil.copy(job, folder)
    generate.write(SCALE, folder / "data")
    return folder


@pytest.fixture(scope="module")
def database(example: Path) -> Iterator[Any]:
    """DuckDB, which knows the tables."""
    with duckdb.connect() as connection:
        for path in (example / "data").glob("*.parquet"):
            connection.execute(f"create view {path.stem} as from '{path}'")
        yield connection


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in NAMES],
)
def test_a_job_gives_what_duckdb_gives(name: str, example: Path, database: Any) -> None:
    result = mrflight.run(example / f"{name}.toml")
    paths = sorted((example / "out" / name).glob("part-*.parquet"))
    table = pa.concat_tables([pq.read_table(path) for path in paths])
    expected = database.sql((TPCH / "queries" / f"{name}.sql").read_text()).to_arrow_table()
    assert (result.rows_out, result.attempts.failed) == (len(expected), 0)
    assert len(expected) > 0
    assert table.column_names == expected.column_names
    for row, other in zip(rows(table), rows(expected), strict=True):
        assert all(map(same, row, other)), (row, other)


def test_each_query_has_a_job_and_a_line_in_the_readme() -> None:
    assert sorted(NAMES) == sorted(path.stem for path in TPCH.glob("q*.toml"))
    assert sorted(NAMES) == sorted(path.stem for path in (TPCH / "queries").glob("*.sql"))
    listed = re.findall(r"^\| `(q\d+)\.toml` \|", (TPCH / "README.md").read_text(), re.MULTILINE)
    assert tuple(listed) == NAMES


def rows(table: pa.Table) -> list[tuple[object, ...]]:
    """In the table's order, which all of these queries say, or have one row."""
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def same(value: object, other: object) -> bool:
    """Decimals and all else exactly, doubles but for rounding."""
    if isinstance(value, float) and isinstance(other, float):
        return math.isclose(value, other, rel_tol=NEAR)
    return value == other
