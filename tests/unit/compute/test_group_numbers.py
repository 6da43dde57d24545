"""Groups are numbered by their first rows, whatever the columns of their key."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.compute.group_numbers import number_groups
from tests.support.suite.examples import some_of

WIDE = st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1]) | st.integers(-(2**63), 2**63 - 1)
ROWS = st.lists(
    st.tuples(
        st.none() | WIDE,
        WIDE,
        st.none() | st.sampled_from(["", "a", "b"]),
        st.sampled_from([0.0, -0.0, math.nan, -math.nan, 1e300, -1e300]),
    ),
    max_size=40,
)
TYPES = [pa.int64(), pa.int64(), pa.string(), pa.float64()]


@settings(max_examples=some_of(60))
@given(rows=ROWS, columns=st.lists(st.integers(0, 3), max_size=4, unique=True))
def test_equal_rows_have_one_number(rows: list[tuple[object, ...]], columns: list[int]) -> None:
    arrays = {str(at): pa.array([row[at] for row in rows], TYPES[at]) for at in range(4)}
    numbers, firsts = number_groups(pa.table(arrays), [str(at) for at in columns])
    keys = [tuple(plain(row[at]) for at in columns) for row in rows]
    distinct = list(dict.fromkeys(keys))
    assert numbers.to_pylist() == [distinct.index(key) for key in keys]
    assert firsts.to_pylist() == [keys.index(key) for key in distinct]


def plain(value: object) -> object:
    """Return the value such that those of one group are equal: both zeros are, and NaNs."""
    return "NaN" if value != value else value


@pytest.mark.parametrize("rows", [0, 3])
def test_without_columns_there_is_one_group(rows: int) -> None:
    numbers, firsts = number_groups(pa.table({"a": range(rows)}), [])
    assert (numbers.to_pylist(), firsts.to_pylist()) == ([0] * rows, [0] * min(1, rows))
