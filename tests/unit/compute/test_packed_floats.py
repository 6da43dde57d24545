"""Lists of doubles come back as they were packed, from any chunks and slices."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.compute import packed_floats
from mrflight.compute.packed_floats import PACKED, pack, pack_rows, unpack
from tests.support.suite.examples import some_of

Lists = list[list[float] | None]


def packed(lists: Lists) -> pa.ChunkedArray:
    values = [value for each in lists for value in each or []]
    lengths = np.array([len(each or []) for each in lists], np.int64)
    return pack(
        np.array(values, np.float64), lengths, np.array([each is not None for each in lists])
    )


def unpacked(column: pa.ChunkedArray) -> Lists:
    values, starts, lengths = lists = unpack(column)
    assert lists.are_single_values == all(lengths == 1)
    found = [values[a : a + n].tolist() for a, n in zip(starts, lengths, strict=True)]
    return [each or None for each in found]


LISTS = st.lists(st.none() | st.lists(st.integers(0, 9).map(float), min_size=1, max_size=3))


@pytest.mark.parametrize("most", [2**27, 2])
@settings(max_examples=some_of(60))
@given(parts=st.lists(LISTS, min_size=1, max_size=3), cut=st.integers(0, 2))
def test_lists_come_back(most: int, parts: list[Lists], cut: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_floats, "_MAX_FLOATS", most)
        chunks = [chunk[cut:] for part in parts for chunk in packed(part).chunks]
        column = pa.chunked_array(chunks, PACKED)
    kept = [each.as_py() for each in column]
    assert unpacked(column) == [None if b is None else np.frombuffer(b).tolist() for b in kept]
    assert packed(parts[0]).null_count == sum(each is None for each in parts[0])


@given(st.lists(st.none() | st.integers(-5, 5), max_size=20), st.integers(0, 3))
def test_each_row_is_a_list_of_its_value(values: list[int | None], cut: int) -> None:
    rows = pack_rows(pa.chunked_array([pa.array(values, pa.int32())[cut:]]))
    assert unpacked(rows) == [None if value is None else [value] for value in values[cut:]]
