"""Sums are exact or do not fit their type, and means are exact within rounding."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.config.aggregates import Aggregate
from mrflight.errors import JobError
from mrflight.tasks.operators.exact_sums import may_overflow
from mrflight.tasks.operators.grouping import group
from tests.support.queries.aggregate_oracle import expected, groups_of, nearest
from tests.support.queries.column_kinds import Kind
from tests.support.suite.examples import some_of
from tests.support.suite.messages import refused

examples = settings(max_examples=some_of(60), derandomize=True)

INT64_MAX, UINT64_MAX = 2**63 - 1, 2**64 - 1
SUM, MEAN = Aggregate("x", "sum", "v"), Aggregate("x", "mean", "v")


# Sums at the ends of their types


@pytest.mark.parametrize(
    ("type_", "least", "most"),
    [
        (pa.int64(), -INT64_MAX - 1, INT64_MAX),
        (pa.uint64(), 0, UINT64_MAX),
        (pa.duration("ns"), -INT64_MAX - 1, INT64_MAX),
    ],
    ids=str,
)
@examples
@given(data=st.data())
def test_sums_are_exact_or_do_not_fit(
    type_: pa.DataType, least: int, most: int, data: st.DataObject
) -> None:
    value = st.sampled_from([least, most, most - 1, most // 2, 0, 1]) | st.integers(least, most)
    kind = Kind(type_, value)
    rows = data.draw(
        st.lists(st.tuples(st.integers(0, 2), st.none() | value), min_size=1, max_size=6)
    )
    keys, values = [key for key, _ in rows], [value for _, value in rows]
    table = pa.table({"k": keys, "v": kind.array(values)})
    sums = {
        key: expected("sum", kind.type, [values[row] for row in members])
        for key, members in groups_of(keys).items()
    }
    fits = all(total is None or least <= total <= most for total in sums.values())
    if not fits:
        with pytest.raises(JobError, match=r"^reduce\.aggregate\.x: sum of 'v' does not fit"):
            group(table, ["k"], [SUM])
        return
    result = group(table, ["k"], [SUM])
    assert result["x"].type == kind.type
    found = Kind(kind.type, st.nothing()).list(result["x"])
    assert dict(zip(result["k"].to_pylist(), found, strict=True)) == sums


@pytest.mark.parametrize(
    ("type_", "rows", "total"),
    [
        (pa.decimal128(38, 0), 1, Decimal("9" * 38)),
        (pa.decimal128(38, 0), 2, None),
        (pa.decimal128(38, 0), 4, None),
        (pa.decimal256(76, 0), 1, Decimal("9" * 76)),
        (pa.decimal256(76, 0), 2, None),
        (pa.decimal256(76, 0), 8, None),
    ],
    ids=str,
)
def test_decimal_sums_are_exact_or_do_not_fit(
    type_: pa.DataType, rows: int, total: Decimal | None
) -> None:
    table = pa.table(
        {"k": [1] * rows, "v": pa.array([Decimal("9" * type_.precision)] * rows, type_)}
    )
    if total is not None:
        assert group(table, ["k"], [SUM])["x"].to_pylist() == [total]
        return
    with refused(JobError, "reduce.aggregate.x"):
        group(table, ["k"], [SUM])


@pytest.mark.parametrize("rows", [1, 3, 1000])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("bits", [0, 1, 63, 64, 65, 80, 116, 117, 118, 124, 125, 126])
def test_overflow_of_decimals_depends_on_the_largest_value(bits: int, sign: int, rows: int) -> None:
    largest = min(2**bits, 10**38 - 1)
    values = [Decimal(sign * largest), None, *[Decimal(-sign)] * rows, Decimal(sign * largest)]
    column = pa.array([Decimal(10**38 - 1), *values], pa.decimal128(38, 0))[1:]
    cut = pa.chunked_array([column[:1], column[1:1], column[1:]])
    assert may_overflow(cut) == (largest * len(column) >= 10**38)


def test_decimal_sums_of_several_groups_fit_one_by_one() -> None:
    """Sums are tried in a wider type. decimal256 has none, so large ones are refused together."""
    most = Decimal("9" * 38)
    table = pa.table({"k": [1, 2], "v": pa.array([most, most], pa.decimal128(38, 0))})
    assert group(table, ["k"], [SUM])["x"].to_pylist() == [most, most]


@pytest.mark.parametrize("type_", [pa.decimal128(38, 0), pa.decimal256(76, 0)], ids=str)
def test_decimal_means_do_not_wrap_around(type_: pa.DataType) -> None:
    most = Decimal("9" * type_.precision)
    table = pa.table({"k": [1] * 8, "v": pa.array([most] * 8, type_)})
    try:
        result = group(table, ["k"], [MEAN])["x"].to_pylist()
    except JobError:
        return
    assert result == [most]


def test_a_sum_of_nulls_is_null() -> None:
    table = pa.table({"k": [1, 1], "v": pa.array([None, None], pa.int64())})
    assert group(table, ["k"], [SUM])["x"].to_pylist() == [None]


# Means of integers


def mean_of(values: list[int], type_: pa.DataType) -> float:
    table = pa.table({"k": [1] * len(values), "v": Kind(type_, st.nothing()).array(values)})
    mean: float = group(table, ["k"], [MEAN])["x"][0].as_py()
    return mean


@examples
@given(st.lists(st.integers(0, UINT64_MAX), min_size=1, max_size=6))
def test_means_of_uint64_are_exact_within_rounding(values: list[int]) -> None:
    exact = Fraction(sum(values), len(values))
    assert abs(Fraction(mean_of(values, pa.uint64())) - exact) <= 4 * math.ulp(exact)


@examples
@given(st.lists(st.integers(-INT64_MAX - 1, INT64_MAX), min_size=1, max_size=6))
def test_means_of_int64_are_exact_within_rounding(values: list[int]) -> None:
    exact = Fraction(sum(values), len(values))
    assert abs(Fraction(mean_of(values, pa.int64())) - exact) <= 4 * math.ulp(exact)


@pytest.mark.parametrize(
    "values",
    [
        [2**62, 2**62, -(2**62), 3 - 2**62],
        [2**53 + 1, -(2**53)],
        [INT64_MAX, -INT64_MAX, 1],
    ],
    ids=str,
)
def test_means_keep_the_small_remainders_of_large_numbers(values: list[int]) -> None:
    assert mean_of(values, pa.int64()) == pytest.approx(sum(values) / len(values), rel=1e-12)


@examples
@given(
    st.lists(
        st.integers(-9, 9) | st.sampled_from([INT64_MAX, -INT64_MAX - 1]), min_size=1, max_size=6
    )
)
def test_a_mean_of_durations_is_the_nearest_duration(values: list[int]) -> None:
    column = pa.array(values, pa.int64()).cast(pa.duration("us"))
    table = pa.table({"k": [1] * len(values), "v": column})
    found = group(table, ["k"], [MEAN])["x"]
    assert found.type == pa.duration("us")
    assert found.cast(pa.int64()).to_pylist() == [nearest(Fraction(sum(values), len(values)))]


def test_a_mean_does_not_depend_on_other_groups() -> None:
    alone = pa.table({"k": [1, 1], "v": [2**53 + 1, 1 - 2**53]})
    beside = pa.concat_tables([alone, pa.table({"k": [2, 2], "v": [INT64_MAX, INT64_MAX]})])
    means = [group(table, ["k"], [MEAN]).sort_by("k")["x"][0].as_py() for table in (alone, beside)]
    assert means[0] == means[1]
