"""Joins of tables by our operator, and by DuckDB."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import duckdb
import pyarrow as pa
from pyarrow import lib

from mrflight.compute.layout import canonical_schema, to_canonical
from mrflight.system.scratch import ScratchFolder
from mrflight.tasks.operators import hash_join as joins
from mrflight.tasks.operators.hash_join import Join
from tests.support.queries.column_kinds import same

_DUCKDB = {
    lib.Type_HALF_FLOAT: pa.float32(),
    lib.Type_DECIMAL64: pa.decimal128(38, 2),
    lib.Type_DECIMAL256: pa.decimal128(38, 2),
    lib.Type_FIXED_SIZE_BINARY: pa.binary(),
    lib.Type_NA: pa.int32(),
}


def joined(
    join: Join, left: pa.Table, right: pa.Table, rows_bytes: int, folder: Path, batch_rows: int = 7
) -> list[pa.Table]:
    """The result's tables; what went to local files is gone."""
    with ScratchFolder("join", folder) as scratch:
        sides = (iter(table.to_batches(max_chunksize=batch_rows)) for table in (left, right))
        plan = join.plan(left.schema, right.schema)
        tables = list(joins.join_tables(plan, *sides, rows_bytes, scratch))
        assert list(folder.rglob("*.arrows")) == []
    assert tables
    wanted = join.result_schema(left.schema, right.schema)
    assert all(table.schema.equals(wanted, check_metadata=True) for table in tables)
    return tables


def by_duckdb(join: Join, left: pa.Table, right: pa.Table) -> list[tuple[object, ...]]:
    """The rows that DuckDB makes of the tables, in any order."""
    pairs = list(zip(join.left_on, join.right_on, strict=True))
    holds = " and ".join(f'l."{a}" = r."{b}"' for a, b in pairs)
    merged = [a for a, b in pairs if a == b]
    keys = {name: f'coalesce(l."{name}", r."{name}")' for name in merged}
    columns = [
        f'{keys.get(name, chr(34) + name + chr(34))} as "{name}"' for name in left.schema.names
    ]
    columns += [f'"{name}"' for name in right.schema.names if name not in merged]
    if join.how in ("semi", "anti"):
        columns = [f'l."{name}"' for name in left.schema.names]
    connection = _connection()
    connection.register("lefts", plain(left))
    connection.register("rights", plain(right))
    query = f"select {', '.join(columns)} from lefts l {join.how} join rights r on {holds}"
    return connection.execute(query).fetchall()


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})


def plain(table: pa.Table) -> pa.Table:
    """Return the table in types that DuckDB reads."""
    schema = canonical_schema(table.schema)
    batches = [to_canonical(batch, schema) for batch in table.to_batches()]
    return pa.Table.from_batches(batches, schema).cast(
        pa.schema([(field.name, _DUCKDB.get(field.type.id, field.type)) for field in schema])
    )


def comparable_rows(rows: Sequence[Sequence[object]]) -> list[str]:
    """Return the rows as sorted texts, in which all NaNs are equal and so are both zeros."""
    return sorted(repr(tuple(same(value) for value in row)) for row in rows)


def rows_of(tables: Sequence[pa.Table]) -> list[tuple[object, ...]]:
    table = pa.concat_tables(tables)
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
