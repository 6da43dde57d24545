"""Types that Arrow does not compare by itself become types that it does, in the same order."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from mrflight.compute.comparable import comparable

DECIMALS = [Decimal("1.5"), Decimal("-2.25"), None, Decimal(0)]


def decimals(name: str, digits: int) -> list[pa.Array]:
    """None where pyarrow is older than these types."""
    make = getattr(pa, name, None)
    return [] if make is None else [pa.array(DECIMALS, make(digits, 2))]


COLUMNS = [
    pa.array([3, -1, None, 2], pa.duration("s")),
    pa.array([3, -1, None, 2], pa.duration("ns")),
    pa.array([np.float16(0.5), np.float16(-1), None, np.float16(0)]),
    *decimals("decimal32", 9),
    *decimals("decimal64", 18),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type))
def test_the_order_is_that_of_the_values(column: pa.Array) -> None:
    compared = comparable(pa.chunked_array([column]))
    assert pc.sort_indices(compared).to_pylist() == [1, 3, 0, 2]
    values: list[Any] = sorted(value for value in column.to_pylist() if value is not None)
    extremes = pc.min_max(compared)
    found = pa.array([extremes["min"].as_py(), extremes["max"].as_py()], compared.type)
    assert found.cast(column.type).to_pylist() == [values[0], values[-1]]


@pytest.mark.parametrize(
    "column", [pa.array([1]), pa.array(["a"]), pa.array([0.5]), pa.array([Decimal(1)])], ids=str
)
def test_other_types_stay_what_they_are(column: pa.Array) -> None:
    assert comparable(pa.chunked_array([column])) == pa.chunked_array([column])
