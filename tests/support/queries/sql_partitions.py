"""SQL over tables in partitions, a partition at a time, and by DuckDB over all of their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from mrflight import partition_ids
from mrflight.compute.schemas import empty_batch
from mrflight.system.scratch import ScratchFolder
from mrflight.tasks.operators.sql_reduce import SqlReduce
from tests.support.queries.duckdb_joins import comparable_rows, rows_of

Tables = Mapping[str, pa.Table]
Keys = Mapping[str, Sequence[str]]


def of_partitions(
    text: str, tables: Tables, keys: Keys, partitions: int, folder: Path
) -> list[str]:
    """The rows of all partitions, in any order."""
    reduce = SqlReduce(text, "reduce.sql")
    results = []
    for part in in_partitions(tables, keys, partitions):
        inputs = {name: (table.schema, iter(batches_of(table))) for name, table in part.items()}
        with ScratchFolder("sql", folder) as scratch:
            results.append(pa.Table.from_batches(reduce.apply(inputs, 2**26, scratch)))
    return numbers(rows_of(results))


def in_partitions(tables: Tables, keys: Keys, partitions: int) -> list[dict[str, pa.Table]]:
    """The tables' rows as a shuffle by their keys brings them together."""
    found: list[dict[str, pa.Table]] = []
    ids = {
        name: partition_ids(batches_of(tables[name])[0], key, partitions)
        for name, key in keys.items()
    }
    for number in range(partitions):
        masks = {name: pa.array(np.asarray(each) == number) for name, each in ids.items()}
        found.append({n: t.filter(masks[n]) if n in masks else t for n, t in tables.items()})
    return found


def batches_of(table: pa.Table) -> list[pa.RecordBatch]:
    """One, also where there are no rows."""
    return table.combine_chunks().to_batches() or [empty_batch(table.schema)]


def by_duckdb(text: str, tables: Tables) -> list[str]:
    """The rows, in any order."""
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("create schema public")
        for name, table in tables.items():
            connection.register(f"rows_of_{name}", table)
            for schema in ("main", "public"):
                connection.execute(f"create view {schema}.{name} as from rows_of_{name}")
        return numbers(connection.execute(text).fetchall())


def numbers(rows: list[tuple[object, ...]]) -> list[str]:
    """Return the rows as sorted texts, in which equal numbers of different types are equal."""
    return comparable_rows([[v if v is None else str(v) for v in row] for row in rows])
