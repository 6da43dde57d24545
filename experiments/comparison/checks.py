"""Check whether a run left the right result."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from experiments import oracle
from experiments.comparison import inputs
from experiments.comparison.cases import Case
from experiments.oracle import WrongResultError

_LINEITEM = {
    "l_orderkey": "bigint",
    "l_partkey": "bigint",
    "l_suppkey": "bigint",
    "l_linenumber": "bigint",
    "l_quantity": "decimal(15, 2)",
    "l_extendedprice": "decimal(15, 2)",
    "l_discount": "decimal(15, 2)",
    "l_tax": "decimal(15, 2)",
    "l_returnflag": "varchar",
    "l_linestatus": "varchar",
    "l_shipdate": "date",
    "l_commitdate": "date",
    "l_receiptdate": "date",
    "l_shipinstruct": "varchar",
    "l_shipmode": "varchar",
    "l_comment": "varchar",
}
_HIVE_PART = re.compile(r"/(part=\d+)/")


class Oracle:
    """Knows the right result of one case.

    The result is pyarrow's, or for lineitem a sum over the hashes of its rows.
    """

    def __init__(self, case: Case, folder: Path) -> None:
        self._case = case
        files = inputs.files_of(folder)
        if case.job == "clicks":
            self._expected = oracle.clicks_of(files)
        elif case.job == "zipf":
            self._expected = _zipf_of(folder)
        else:
            self._rows = _fingerprint([str(path) for path in files])

    def check(self, result: Path, what: str) -> None:
        """Raise WrongResultError unless the folder or Delta table ``result`` has the right rows."""
        files = files_of(result)
        if self._case.job == "clicks":
            oracle.check(_read(files, ["url", "clicks"]), self._expected, what)
        elif self._case.job == "zipf":
            _check_zipf(_read(files, ["key", "total", "visits"]), self._expected, what)
        else:
            self._check_lineitem(files, what)

    def _check_lineitem(self, files: list[str], what: str) -> None:
        rows = _fingerprint(files)
        if rows != self._rows:
            raise WrongResultError(f"{what}: (rows, sum of hashes) is {rows}, not {self._rows}")
        if self._case.job == "sort":
            check_sorted(files, "l_partkey", what)
        else:
            check_together(files, "l_orderkey", what)


def files_of(result: Path) -> list[str]:
    """Return the Parquet files that the log of ``result`` names, or all files without a log."""
    if (result / "_delta_log").exists():
        from deltalake import DeltaTable

        return sorted(uri.removeprefix("file://") for uri in DeltaTable(str(result)).file_uris())
    return sorted(str(path) for path in result.rglob("*.parquet") if path.is_file())


def check_sorted(files: list[str], column: str, what: str) -> None:
    """Raise WrongResultError unless each file is sorted and no two overlap."""
    ranges = sorted(filter(None, (_range_of(path, column, what) for path in files)))
    for (_, last, path), (first, _, other) in pairwise(ranges):
        if last > first:
            raise WrongResultError(f"{what}: {path} ends with {last}, {other} starts with {first}")


def _range_of(path: str, column: str, what: str) -> tuple[int, int, str] | None:
    first = last = None
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(columns=[column]):
            values = batch.column(0).to_numpy(zero_copy_only=False)
            if not len(values):
                continue
            if (np.diff(values) < 0).any() or (last is not None and values[0] < last):
                raise WrongResultError(f"{what}: {path} is not sorted by {column}")
            first, last = values[0] if first is None else first, values[-1]
    return None if first is None or last is None else (int(first), int(last), path)


def check_together(files: list[str], column: str, what: str) -> None:
    """Raise WrongResultError unless all rows of a key are in one part: a file, or a hive folder."""
    places = [found[1] if (found := _HIVE_PART.search(path)) else path for path in files]
    queries = (
        f"select distinct {column} as key, '{place}' as place from {_reader([path])}"
        for path, place in zip(files, places, strict=True)
    )
    pairs = " union ".join(queries)
    row = _query(f"select count(*), count(distinct key) from ({pairs})")
    if row[0] != row[1]:
        raise WrongResultError(f"{what}: {row[0] - row[1]} times a key lies in one part more")


def _fingerprint(files: list[str]) -> tuple[int, int]:
    """Return the number of rows and the sum of their hashes, which do not depend on the order."""
    if not files:
        return (0, 0)
    columns = ", ".join(f"{name}::{kind}" for name, kind in _LINEITEM.items())
    row = _query(f"select count(*), sum(hash({columns})::hugeint) from {_reader(files)}")
    return int(row[0]), int(row[1] or 0)


def _reader(files: list[str]) -> str:
    return f"read_parquet({files}, hive_partitioning = false)"


def _query(sql: str) -> tuple[Any, ...]:
    import duckdb

    with duckdb.connect() as database:
        row: tuple[Any, ...] | None = database.execute(sql).fetchone()
    assert row is not None
    return row


def _zipf_of(folder: Path) -> pa.Table:
    visits = ds.dataset(folder, format="parquet", exclude_invalid_files=True).to_table()
    summed = visits.group_by("key").aggregate([("value", "sum"), ("value", "count")])
    return summed.rename_columns({"value_sum": "total", "value_count": "visits"}).sort_by("key")


def _check_zipf(result: pa.Table, expected: pa.Table, what: str) -> None:
    if not result.cast(expected.schema).sort_by("key").equals(expected):
        rows = f"{result.num_rows} rows, expected {expected.num_rows}"
        raise WrongResultError(f"{what}: not the right sums per key ({rows})")


def _read(files: list[str], columns: list[str]) -> pa.Table:
    if not files:
        raise WrongResultError(f"no file with {columns} was left")
    return pa.concat_tables([pq.ParquetFile(path).read(columns) for path in files])
