"""The kernel numbers keys of any columns, and sums the values of their groups."""

from __future__ import annotations

from decimal import Decimal
from functools import reduce
from itertools import accumulate
from operator import xor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrflight.compute import kernel

pytestmark = pytest.mark.usefixtures("needs_kernel")

COLUMNS = {
    pa.int64(): st.sampled_from([0, 1, -(2**63), 2**63 - 1]),
    pa.uint8(): st.integers(0, 3),
    pa.date32(): st.integers(-2, 2),
    pa.bool_(): st.booleans(),
    pa.float64(): st.sampled_from([0.0, 1.5, float("inf")]),
    pa.decimal128(20, 2): st.sampled_from([Decimal("0.01"), Decimal("-1.00"), Decimal(10**17)]),
    pa.decimal256(40, 0): st.sampled_from([Decimal(0), Decimal(10**39)]),
    pa.binary(3): st.sampled_from([b"abc", b"abd"]),
    pa.binary(0): st.just(b""),
    pa.null(): st.none(),
    pa.string(): st.sampled_from(["", "a", "ab", "abcdefgh", "abcdefghi", "abcdefghj", "é" * 40]),
    pa.binary(): st.binary(max_size=20) | st.just(b"\0"),
}


@st.composite
def keys(draw: st.DrawFn) -> list[pa.Array]:
    """Columns of the same length, which may begin in the middle of their buffers."""
    rows, cut = draw(st.integers(1, 60)), draw(st.integers(0, 9))
    columns = []
    for kind in draw(st.lists(st.sampled_from(list(COLUMNS)), min_size=1, max_size=3)):
        values = COLUMNS[kind] | st.none() if draw(st.booleans()) else COLUMNS[kind]
        column = draw(st.lists(values, min_size=rows + cut, max_size=rows + cut))
        columns.append(pa.array(column, kind)[cut:])
    return columns


@given(columns=keys())
def test_keys_of_any_columns_are_numbered(columns: list[pa.Array]) -> None:
    rows = list(zip(*(column.to_pylist() for column in columns), strict=True))
    distinct = list(dict.fromkeys(rows))
    found = kernel.number_keys(columns)
    assert found is not None
    numbers, firsts = found
    assert numbers.to_pylist() == [distinct.index(row) for row in rows]
    assert firsts.to_pylist() == [rows.index(row) for row in distinct]


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.float64()])
def test_many_keys_are_numbered(kind: pa.DataType) -> None:
    keys = np.random.default_rng(1).integers(0, 20_000, 50_000)
    found = kernel.number_keys([pa.array(keys).cast(kind)])
    assert found is not None
    _, firsts, inverse = np.unique(keys, return_index=True, return_inverse=True)
    assert np.array_equal(found[1].to_numpy(), np.sort(firsts))
    assert np.array_equal(found[1].to_numpy()[found[0].to_numpy()], firsts[inverse])


def number_with_hash(wanted: int) -> int:
    """Return the uint64 that has this hash: each step of XXH3 for 8 bytes, undone."""
    multiplier, mask = 0x9FB21C651E98DF25, 2**64 - 1

    def spread(word: int) -> int:
        rotated = (word << bits | word >> (64 - bits) for bits in (0, 49, 24))
        return reduce(xor, rotated) & mask

    word = wanted ^ wanted >> 28 ^ wanted >> 56
    word = word * pow(multiplier, -1, 2**64) & mask
    word ^= (word >> 35) + 8  # which leaves the bits that are shifted
    word = word * pow(multiplier, -1, 2**64) & mask
    for _ in range(63):  # the 64th time would lead back
        word = spread(word)
    word ^= 0x1CAD21F72C81017C ^ 0xDB979083E96DD4DE
    return (word << 32 | word >> 32) & mask


def test_a_null_and_a_number_with_its_hash_are_not_one_key() -> None:
    number = number_with_hash(0x9E3779B97F4A7C15)
    column = pa.array([None, number], pa.uint64())
    assert len(kernel.hash_rows([column]).unique()) == 1
    assert kernel.number_keys([column]) is None
    assert kernel.number_keys([column[1:]]) is not None


@given(values=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40), groups=st.integers(1, 4))
def test_integers_are_summed_unless_a_sum_does_not_fit(values: list[int], groups: int) -> None:
    numbers = [i % groups for i in range(len(values))]
    exact = [sum(values[group::groups]) for group in range(groups)]
    found = kernel.sum_groups(pa.array(values, pa.int64()), pa.array(numbers, pa.int32()), groups)
    if found is None:
        runs = [list(accumulate(values[group::groups])) for group in range(groups)]
        assert any(abs(total) >= 2**63 for run in runs for total in run)
    else:
        assert found.to_pylist() == exact


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64()])
def test_integers_of_any_width_are_summed(kind: pa.DataType) -> None:
    values, numbers = pa.array([9, -128, 127, -1], kind), pa.array([0, 1, 0, 1, 1], pa.int32())
    found = kernel.sum_groups(values[1:], numbers[2:], 3)
    assert found is not None
    assert found.equals(pa.array([-128, 126, 0], pa.int64()))


def test_decimals_are_summed_unless_a_sum_has_more_than_38_digits() -> None:
    largest = Decimal("9" * 38)
    numbers = pa.array([0, 1, 1], pa.int32())
    values = pa.array([largest, Decimal(-3), Decimal(1)], pa.decimal128(38, 0))
    found = kernel.sum_groups(values, numbers, 2)
    assert found is not None
    assert found.equals(pa.array([largest, Decimal(-2)], pa.decimal128(38, 0)))
    values = pa.array([1, largest, Decimal(1)], pa.decimal128(38, 0))
    assert kernel.sum_groups(values, numbers, 2) is None


def test_malformed_numbers_of_groups_are_refused() -> None:
    for number in (2, -1):
        numbers = pa.array([0, number], pa.int32())
        for kind in (pa.int64(), pa.decimal128(9, 0)):
            with pytest.raises(ValueError, match="not that of a group"):
                kernel.sum_groups(pa.array([1, 2], kind), numbers, 2)
    with pytest.raises(ValueError, match="it has nulls"):
        kernel.sum_groups(pa.array([1, None], pa.int64()), pa.array([0, 1], pa.int32()), 2)
