"""The answers of queries: DuckDB's, and those that a run left in its folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from experiments import tpch
from experiments.oracle import WrongResultError
from experiments.queries.arguments import statements

ORDERED_BY = {"q11": ["value"]}
"""The columns that order the rows, where rows with equal values may come in any order."""


def expected(data: Path, queries: Sequence[str]) -> dict[str, pa.Table]:
    """Return DuckDB's answers."""
    with duckdb.connect() as database:
        for path in data.glob("*.parquet"):
            database.execute(f"create view {path.stem} as from '{path}'")
        found = {}
        for name in queries:
            views, query = statements(tpch.sql_of(name))
            for view in views:
                database.execute(view)
            found[name] = database.sql(query).to_arrow_table()
        return found


def read(folder: Path) -> pa.Table:
    """Return the rows that a run left in its folder."""
    stream = folder / "answer.arrow"
    if stream.exists():
        with pa.OSFile(str(stream)) as file:
            return pa.ipc.open_stream(file).read_all()
    if not any((folder / "answer").glob("*.parquet")):
        raise WrongResultError("it left no file")
    return tpch.read(folder / "answer")


def check(query: str, answer: pa.Table, right: pa.Table) -> None:
    """Raise WrongResultError unless the rows are those of DuckDB, in an order of the query's."""
    if query in ORDERED_BY and answer.num_columns == right.num_columns:
        answer = answer.rename_columns(right.column_names)
        tpch.check(query, answer.select(ORDERED_BY[query]), right.select(ORDERED_BY[query]))
        by_all = [(name, "ascending") for name in right.column_names]
        answer, right = answer.sort_by(by_all), right.sort_by(by_all)
    if answer.num_columns != right.num_columns:
        raise WrongResultError(f"{query}: {answer.num_columns} columns, not {right.num_columns}")
    tpch.check(query, answer, right)
