"""The tables of TPC-DS, its queries, and DuckDB's answers to them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa

from experiments import timed_process

NUMBERS = range(1, 100)

REWRITTEN = {
    49: (") CATALOG", ") catalog", "a table is called CATALOG and catalog; names have one case"),
}
"""Rewrites of query texts for mrflight by query number: old text, new text, reason."""

_NULLS = "set default_null_order = 'nulls_last_on_asc_first_on_desc'"
"""Where DataFusion and PostgreSQL sort nulls if the query does not say it."""


class Query(NamedTuple):
    """A query and the tables that it names."""

    number: int
    path: Path
    tables: dict[str, Path]

    @property
    def name(self) -> str:
        return f"q{self.number}"


def prepare(scale: float, folder: Path, generator: Path) -> Path:
    """Return a folder of tables, and of queries in ``queries``; they are made once.

    ``generator`` is an interpreter that has the packages of ``generator.txt``.
    """
    data = folder / f"tpcds-sf{scale:g}"
    if not data.exists():
        unfinished = data.with_name(f".{data.name}.tmp")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        program = Path(__file__).with_name("generate.py")
        timed_process.run([str(generator), str(program), f"{scale}", str(unfinished)], 7200.0)
        for number, (old, new, _) in REWRITTEN.items():
            path = unfinished / "queries" / f"q{number}.sql"
            path.write_text(path.read_text().replace(old, new))
        unfinished.rename(data)
    return data


def queries(data: Path, numbers: Sequence[int]) -> list[Query]:
    """Return the queries of these numbers."""
    tables = {path.stem: path for path in sorted(data.glob("*.parquet"))}
    found = []
    for number in numbers:
        path = data / "queries" / f"q{number}.sql"
        words = set(re.findall(r"\w+", path.read_text()))
        named = {name: table for name, table in tables.items() if name in words}
        found.append(Query(number, path, named))
    return found


def expected(query: Query) -> pa.Table:
    """Return DuckDB's answer."""
    with duckdb.connect() as database:
        database.execute(_NULLS)
        for name, path in query.tables.items():
            database.execute(f"create view {name} as from '{path}'")
        return database.sql(query.path.read_text()).to_arrow_table()
