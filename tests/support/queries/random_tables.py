"""Small tables of every kind of column, for random queries."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal

import pyarrow as pa

INT, TEXT, DECIMAL, FLOAT, DATE, BOOL = "int", "text", "decimal", "float", "date", "bool"
TYPES = {
    "id": INT,
    "k": INT,
    "v": INT,
    "s": TEXT,
    "d": DECIMAL,
    "f": FLOAT,
    "t": DATE,
    "b": BOOL,
}
ARROW = {
    INT: pa.int64(),
    TEXT: pa.string(),
    DECIMAL: pa.decimal128(10, 2),
    FLOAT: pa.float64(),
    DATE: pa.date32(),
    BOOL: pa.bool_(),
}
ROWS = {"big": 60, "mid": 25, "few": 5, "none": 0}
"""The tables and how many rows they have."""

TEXTS = ("a", "b", "ab", "B", "", "long enough not to be inlined")


def random_tables(seed: int) -> dict[str, pa.Table]:
    """Tables with the same columns, few distinct values, and a fifth of these null."""
    rng = random.Random(seed)
    return {name: _table(rng, rows) for name, rows in ROWS.items()}


def _table(rng: random.Random, rows: int) -> pa.Table:
    values: dict[str, Callable[[], object]] = {
        INT: lambda: rng.randrange(-1, 6),
        TEXT: lambda: rng.choice(TEXTS),
        DECIMAL: lambda: Decimal(rng.randrange(-200, 400, 50)) / 100,
        FLOAT: lambda: rng.randrange(-4, 12) / 4,  # sums are exact
        DATE: lambda: date(2023, 12, 30) + timedelta(rng.randrange(6)),
        BOOL: lambda: rng.random() < 0.5,
    }
    columns = {"id": pa.array(range(rows), pa.int64())}
    for name, kind in list(TYPES.items())[1:]:
        made = [None if rng.random() < 0.2 else values[kind]() for _ in range(rows)]
        columns[name] = pa.array(made, ARROW[kind])
    return pa.table(columns)
