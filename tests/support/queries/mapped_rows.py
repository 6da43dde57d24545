"""A table with columns of all kinds, whose rows datasets map."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa

from mrflight import Dataset

ROWS = pa.table(
    {
        "url": ["a", "b", None, "a"],
        "weight": [1, 4, 5, None],
        "Price": [1.5, -2.5, None, 4.5],
        "n of": pa.array([1, 2, 3, 4], pa.int32()),
        "select": [True, False, None, True],
        'q"u.x': ["x", "y", "z", None],
        "day": [date(2024, 1, 1), date(2024, 2, 29), None, date(1999, 12, 31)],
        "at": [datetime(2024, 1, 1, 5, tzinfo=UTC), None, None, datetime(2024, 1, 2, tzinfo=UTC)],
        "cost": pa.array([Decimal("1.50"), Decimal("2.25"), None, None], pa.decimal128(9, 2)),
        "tags": [["p", "q"], [], None, ["p"]],
        "place": [{"x": 1}, {"x": 2}, {"x": None}, {"x": 4}],
    }
)


def all_of(rows: Dataset) -> pa.Table:
    """Return all rows, which are mapped in this process."""
    return rows.head(1000)
