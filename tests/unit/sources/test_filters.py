"""A filter gives the rows that DuckDB has, whatever columns it needs, and reads no more."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import mrflight
from mrflight.config.input_spec import InputSpec
from mrflight.config.job_file import decode_job
from mrflight.errors import ColumnNotFoundError, JobError, JobFileError
from mrflight.frontend.first_rows import first_rows
from mrflight.sources import open_source
from tests.support.suite.messages import refused

ROWS = pa.table(
    {
        "n": range(100),
        "day": [f"2024-01-{1 + n % 20:02}" for n in range(100)],
        "Part": [["a", "b", None][n % 3] for n in range(100)],
        "x": [None if n % 7 == 0 else n / 2 for n in range(100)],
    }
)

WHERE = "n between 5 and 60 and \"Part\" = 'a' and x > 10"


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "files").mkdir()
    pq.write_table(ROWS[:50], "files/a.parquet", row_group_size=10)
    pq.write_table(ROWS[50:], "files/b.parquet", row_group_size=10)
    pc.write_csv(ROWS, "rows.csv")
    write_deltalake("delta", ROWS[:50], partition_by=["Part"])
    write_deltalake("delta", ROWS[50:], mode="append")
    return tmp_path


def expected(columns: str, where: str) -> list[dict[str, Any]]:
    database: Any = duckdb.connect()
    database.register("rows", ROWS)
    found: pa.Table = database.sql(f"select {columns} from rows where {where}").to_arrow_table()
    return found.to_pylist()


@pytest.mark.parametrize("path", ["files", "rows.csv", "delta"])
@pytest.mark.parametrize("columns", [["day", "n"], None])
def test_a_table_is_read_with_a_filter(tables: Path, path: str, columns: list[str] | None) -> None:
    wanted = expected(", ".join(columns or ['n, day, "Part", x']), WHERE)
    of_sql = mrflight.read_table(path, columns, filter=WHERE)
    col = mrflight.col
    condition = col("n").between(mrflight.lit(5), mrflight.lit(60)) & (col("Part") == "a")
    of_expression = mrflight.read_table(path, columns, filter=condition & (col("x") > 10))
    scanned = mrflight.scan_table(path, columns, filter=WHERE).head(1000)
    for found in (of_sql, of_expression, scanned):
        rows = [dict(row, day=str(row["day"])) for row in found.to_pylist()]
        assert sorted(rows, key=lambda row: row["n"]) == wanted
        assert found.column_names == (columns or ROWS.column_names)
    assert mrflight.read_table(path, columns, filter="n < 0").num_rows == 0
    for folded in ("x > null", "coalesce(n < 0, x > 1)"):  # plans without x or without rows
        assert mrflight.read_table(path, columns, filter=folded).num_rows == 0
    assert mrflight.read_table(path, columns, filter="n < 0").schema == of_sql.schema


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"filter": "m > 3"}, ColumnNotFoundError),
        ({"filter": "N > 3"}, ColumnNotFoundError),
        ({"filter": "sum(n) > 3"}, JobFileError),
        ({"filter": 3}, JobFileError),
        (
            {"filter": "n > 3", "columns": ["m"]},
            ColumnNotFoundError,
        ),
    ],
)
@pytest.mark.parametrize("path", ["files", "delta"])
def test_a_wrong_filter_of_a_table_is_named_as_its_argument(
    tables: Path, path: str, given: dict[str, Any], kind: type[JobError]
) -> None:
    with refused(kind):
        mrflight.read_table(path, **given)


def rows_of(tables: Path, text: str) -> pa.Table:
    """Return the rows of a job, whose maps run in this process."""
    spec = decode_job(tomllib.loads(f"[job]\nname = 'x'\n[output]\ntable = ''\n{text}"))
    return first_rows(spec, tables, 1000)


@pytest.mark.parametrize(
    ("keys", "columns"),
    [
        ("", 'n, day, "Part", x'),
        ("columns = ['day', 'n']", "day, n"),
        ("sql = 'select n + 1 as m from rows'", "n + 1 as m"),
        ("columns = ['n']\nsql = 'select n + 1 as m from rows'", "n + 1 as m"),
        ("sql_table = 'r'\nsql = 'select n as m from r where n <> 8'", "n as m"),
    ],
)
def test_a_filter_of_a_job_file_comes_before_its_map(tables: Path, keys: str, columns: str) -> None:
    text = f"[inputs.rows]\npath = 'files'\nfilter = '''{WHERE}'''\n{keys}"
    assert rows_of(tables, text).to_pylist() == expected(columns, WHERE)


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ("filter = 'm > 3'", "inputs.rows.filter"),
        ("filter = 'count(*) > 3'", "inputs.rows.filter"),
        ("filter = ''", "inputs.rows.filter"),
        (
            "filter = 'n > 3'\ncolumns = ['m']",
            "inputs.rows.columns",
        ),
        (
            "filter = 'n > 3'\ncolumns = ['n']\nsql = 'select x from rows'",
            "inputs.rows.sql",
        ),
    ],
)
def test_a_wrong_filter_of_a_job_file_is_named_by_its_key(
    tables: Path, keys: str, key: str
) -> None:
    with refused(JobError, key):
        rows_of(tables, f"[inputs.rows]\npath = 'files'\n{keys}")


def test_a_filter_of_a_job_file_may_name_columns_that_it_does_not_need(tables: Path) -> None:
    text = "[inputs.rows]\npath = 'files'\ncolumns = ['day']\nfilter = 'not (x > null and n < 3)'"
    assert rows_of(tables, text).to_pylist() == expected("day", "not (x > null and n < 3)")


def test_a_filter_reads_the_columns_that_it_needs(tables: Path) -> None:
    spec = InputSpec(path="files", columns=["day"], filter="n > 3")
    assert open_source("rows", spec, tables, {}, 1 << 20).reader.schema.names == ["n", "day"]  # type: ignore[union-attr]
