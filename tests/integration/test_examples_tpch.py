"""``examples/tpch``: every job gives what DuckDB gives for its query."""

from __future__ import annotations

import importlib.util
import itertools
import math
import re
import shutil
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mrflight
from mrflight.system.progress import QuietProgress
from tests.support.commands.experiments import TPCH, generate_tpch
from tests.support.faults import place as fault_place

pytestmark = pytest.mark.runs_on_ray

SCALE = 0.1
NAMES = tuple(f"q{number}" for number in (1, 3, 4, 5, 6, 10, 12, 13, 14, 18, 21))

QUERIES = tuple(f"q{number}" for number in range(1, 23))
QUICK_SQL = ("q2", "q15", "q21")
"""A subquery over a join, a view that is read twice, and joins that keep or drop what matches."""

QUICK = ("q13", "q21")
"""A join with a limit, an outer join and two aggregations, and SQL with subqueries."""

KILLED = {("q3", "worker"), ("q15", "data"), ("q21", "worker"), ("q21", "data")}
"""The queries whose processes are killed in every run of CI; a soak has all."""

NEAR = 1e-12
"""Relative, of doubles: a mean is a quotient, and who rounds what before it is not said."""


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example with its data."""
    if importlib.util.find_spec("datafusion") is None:
        pytest.skip("pip install 'mrflight[sql]'")
    folder = tmp_path_factory.mktemp("tpch")
    for job in TPCH.glob("q*.toml"):
        shutil.copy(job, folder)
    generate_tpch(SCALE, folder / "data")
    return folder


@pytest.fixture(scope="module")
def database(example: Path) -> Iterator[Any]:
    """DuckDB, which knows the tables."""
    with duckdb.connect() as connection:
        for path in (example / "data").glob("*.parquet"):
            connection.execute(f"create view {path.stem} as from '{path}'")
        yield connection


@pytest.mark.slow_but("q21")
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
    assert sorted(QUERIES) == sorted(path.stem for path in (TPCH / "queries").glob("*.sql"))
    listed = re.findall(r"^\| `(q\d+)\.toml` \|", (TPCH / "README.md").read_text(), re.MULTILINE)
    assert tuple(listed) == NAMES


@pytest.mark.slow_but("q2-local")
@pytest.mark.also_on_ray("q21")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK_SQL else pytest.mark.slow) for name in QUERIES],
)
def test_a_query_gives_what_duckdb_gives(name: str, example: Path, database: Any) -> None:
    text = (TPCH / "queries" / f"{name}.sql").read_text()
    found = query(example, text).with_shuffle(partitions=3).collect(progress=False)
    assert_answers(found, text, database)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(*cell, marks=pytest.mark.slow if cell in KILLED else pytest.mark.soak)
        for cell in itertools.product(QUERIES, ("worker", "data"))
    ],
)
def test_a_query_outlives_a_killed_process(
    name: str, kind: str, example: Path, database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (TPCH / "queries" / f"{name}.sql").read_text()
    rows = query(example, text).with_shuffle(partitions=3)
    killer = KillingOnce(kind)
    monkeypatch.setattr("mrflight.frontend.dataset_reader.progress_here", lambda shown: killer)
    settings = {"cluster.workers": 2, "cluster.data_servers": 2}
    found = rows.with_settings(settings).collect()
    assert killer.killed == 1
    assert_answers(found, text, database)


class KillingOnce(QuietProgress):
    """Kills a process of the job when its second stage begins."""

    def __init__(self, kind: str) -> None:
        self.killed = 0
        self._kind = kind
        self._begun = 0

    def begin(self, stage: str, tasks: int, size_bytes: int = 0, at_once: int = 1) -> None:
        self._begun += 1
        if self._begun == 2:
            fault_place.PLACE.processes(self._kind)[-1].kill()
            self.killed += 1


def query(example: Path, text: str) -> mrflight.Dataset:
    """The query over the tables that it names."""
    files = (example / "data").glob("*.parquet")
    tables = {file.stem: mrflight.read(file) for file in files if file.stem in text}
    return mrflight.sql(text, **tables)


def assert_answers(found: pa.Table, text: str, database: Any) -> None:
    """DuckDB gives the same rows; those that the order leaves open may come in another one."""
    *views, last = text.split(";")
    for view in views:
        database.execute(view.replace("create view", "create or replace view"))
    expected = database.sql(last).to_arrow_table()
    assert len(expected) > 0
    pairs = zip(sorted(rows(found), key=repr), sorted(rows(expected), key=repr), strict=True)
    for row, other in pairs:
        assert all(map(same, row, other)), (row, other)


def rows(table: pa.Table) -> list[tuple[object, ...]]:
    """In the table's order, which all of these queries say, or have one row."""
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def same(value: object, other: object) -> bool:
    """Decimals and all else exactly, doubles but for rounding.

    A mean or a quotient of decimals is a double in DuckDB, and a decimal in DataFusion.
    """
    if isinstance(value, Decimal) and isinstance(other, float):
        digits = -int(value.as_tuple().exponent)
        return math.isclose(value, other, abs_tol=10**-digits)
    if isinstance(value, float) and isinstance(other, float):
        return math.isclose(value, other, rel_tol=NEAR)
    return value == other
