"""Check the clicks of very many sites by a fingerprint from DuckDB, instead of a table of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from experiments.comparison.checks import files_of
from experiments.oracle import WrongResultError

_OF_VISITS = """
select url, sum(if(visitor = 'User', 2, 1))::bigint as clicks
from read_csv({files}, header = true, columns = {{'url': 'varchar', 'visitor': 'varchar'}})
group by url
"""
_FACTS = "select count(*), sum(hash(url, clicks)::hugeint) from ({rows})"

Fingerprint = tuple[Any, ...]


def of_visits(files: list[Path]) -> Fingerprint:
    """Return how many sites the ``files`` name, and the sum of the hashes of their clicks."""
    return _facts(_OF_VISITS.format(files=[str(path) for path in files]))


def rows_of_visits(files: list[Path]) -> pa.Table:
    """Return the ``url`` and ``clicks`` of all sites that the ``files`` name."""
    with duckdb.connect() as database:
        rows = _OF_VISITS.format(files=[str(path) for path in files])
        return database.sql(rows).to_arrow_table()


def check(table: Path, expected: Fingerprint, what: str) -> None:
    """Raise WrongResultError unless the Delta table at ``table`` has this fingerprint."""
    found = _facts(f"select url, clicks::bigint as clicks from read_parquet({files_of(table)})")
    if found != expected:
        raise WrongResultError(f"{what}: (sites, sum of hashes) is {found}, not {expected}")


def _facts(rows: str) -> Fingerprint:
    with duckdb.connect() as database:
        (facts,) = database.execute(_FACTS.format(rows=rows)).fetchall()
    return tuple(facts)
