"""Tables of all kinds of columns that have an order, and DuckDB's answers about them."""

from __future__ import annotations

import atexit
import datetime as dt
import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import cache
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from mrflight.config.sort_key import SortKey

_UTC = dt.UTC

KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "byte": (pa.int8(), [-128, -1, 0, 127]),
    "int": (pa.int64(), [-(2**63), -1, 0, 1, 2**63 - 1]),
    "unsigned": (pa.uint64(), [0, 1, 2**63, 2**64 - 1]),
    "near": (pa.int32(), [7, 8, 9, 10]),
    "float": (pa.float64(), [-math.inf, -1.5, -0.0, 0.0, 5e-324, 1.5, math.inf, math.nan]),
    "single": (pa.float32(), [-2.5, -0.0, 0.0, 2.5, math.nan]),
    "bool": (pa.bool_(), [False, True]),
    "text": (pa.string(), ["", "a", "a\0", "ab", "b", "ä", "\U0001f40c"]),
    "words": (pa.dictionary(pa.int16(), pa.string()), ["b", "a", "c"]),
    "bytes": (pa.binary(), [b"", b"\0", b"\x7f", b"\xff", b"a"]),
    "price": (pa.decimal128(12, 2), [Decimal("-1.25"), Decimal(0), Decimal("99.99")]),
    "wide": (
        pa.decimal128(38, 3),
        [Decimal(n).scaleb(-3) for n in (10**33, -(10**33), 2**64, 2**63, 1, -1)],
    ),
    "date": (pa.date32(), [dt.date(1969, 12, 31), dt.date(1992, 1, 2), dt.date(2026, 11, 22)]),
    "at": (pa.timestamp("us", "UTC"), [dt.datetime(y, 6, 1, tzinfo=_UTC) for y in (1950, 2026)]),
    "nothing": (pa.int64(), [None]),
}


def table_of(kinds: Sequence[str], rows: int, seed: int, skew: float = 0.0) -> pa.Table:
    """A column of each kind, an eighth of it null, and ``row``, the number of the row.

    A share ``skew`` of the rows has the same values.
    """
    random = np.random.default_rng(seed)
    columns = {}
    heavy = random.random(rows) < skew
    for number, kind in enumerate(kinds):
        type_, values = KINDS[kind]
        places = np.where(heavy, 0, random.integers(0, len(values), rows))
        absent = ~heavy & (random.random(rows) < 1 / 8)
        picked = [None if no else values[at] for at, no in zip(places, absent, strict=True)]
        plain = type_.value_type if pa.types.is_dictionary(type_) else type_
        column = pa.array(picked, plain, from_pandas=False)
        columns[f"{kind}{number}"] = column if plain == type_ else column.dictionary_encode()
    return pa.table({**columns, "row": pa.array(range(rows), pa.int64())})


@st.composite
def tables(draw: st.DrawFn, most_columns: int = 3, most_rows: int = 80) -> pa.Table:
    kinds = draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=most_columns))
    rows = draw(st.sampled_from([0, 1, 2, most_rows // 2, most_rows]))
    skew = draw(st.sampled_from([0.0, 0.0, 0.8]))
    return table_of(kinds, rows, draw(st.integers(0, 2**32)), skew)


@st.composite
def orders(draw: st.DrawFn, columns: Sequence[str]) -> tuple[SortKey, ...]:
    """One to all of the columns, in any direction."""
    picked = draw(st.lists(st.sampled_from(columns), min_size=1, unique=True))
    return tuple(SortKey(name, draw(st.booleans()), draw(st.booleans())) for name in picked)


def sql_of(keys: Sequence[SortKey]) -> str:
    """Return the keys as ORDER BY takes them."""
    return ", ".join(
        f'"{key.column}" {"desc" if key.descending else "asc"} '
        f"nulls {'first' if key.nulls_first else 'last'}"
        for key in keys
    )


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """One for all questions: opening it takes longer than an answer."""
    atexit.register(_database.cache_clear)
    return duckdb.connect(config={"threads": 1})


def query_duckdb(query: str, table: pa.Table) -> pa.Table:
    """Return the result of a query of ``t`` in DuckDB, which gives times the machine's zone."""
    database = _database()
    database.register("t", table)
    found = database.sql(query).to_arrow_table()
    zoned = [
        field.with_type(pa.timestamp("us", "UTC")) if getattr(field.type, "tz", None) else field
        for field in found.schema
    ]
    return found.cast(pa.schema(zoned))


def answered(query: str, table: pa.Table) -> list[int]:
    """The numbers of the rows that a query of ``t`` selects, in its order."""
    rows: list[int] = query_duckdb(query, table)["row"].to_pylist()
    return rows


def in_batches(table: pa.Table, rows: int) -> Iterator[pa.RecordBatch]:
    """The table's rows, so many at a time; of no rows one batch."""
    yield from table.to_batches(max_chunksize=rows) or [
        pa.RecordBatch.from_pylist([], schema=table.schema)
    ]
