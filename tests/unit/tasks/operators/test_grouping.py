"""Groups and aggregates equal those of a dictionary of lists, for every type of column."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.compute.quantiles import quantile_type
from mrflight.compute.t_digest import estimate_type
from mrflight.config.aggregates import APPROXIMATIONS, QUANTILES, VARIANCES, Aggregate
from mrflight.errors import JobError
from mrflight.tasks.operators.exact_sums import may_overflow
from mrflight.tasks.operators.grouping import group
from mrflight.tasks.operators.partial_aggregates import plan_partials
from tests.support.column_kinds import KINDS, Kind, admitted, aggregate, chunked, same, with_nulls

few_examples = settings(max_examples=8, derandomize=True)
examples = settings(max_examples=60, derandomize=True)

INT64_MAX, UINT64_MAX = 2**63 - 1, 2**64 - 1
SUM, MEAN = Aggregate("x", "sum", "v"), Aggregate("x", "mean", "v")


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


# The oracle


def expected(function: str, type_: pa.DataType, values: list[Any]) -> Any:
    """Return an aggregate of a group's values in their order, exactly if numbers allow it."""
    found = [value for value in values if value is not None]
    if function == "count":
        return len(found)
    if function == "count_distinct":
        return len({same(value) for value in found})
    if not found:
        return None
    if function in ("first", "last"):
        return found[0 if function == "first" else -1]
    if function in ("min", "max"):
        # What the greatest is where there is a NaN among numbers, is not said anywhere.
        numbers = [value for value in found if not is_nan(value)] or found
        return min(numbers) if function == "min" else max(numbers)
    if function == "bool_and":
        return all(found)
    if function == "bool_or":
        return any(found)
    if function in VARIANCES:
        return variance(function, found)
    if function in (*QUANTILES, *APPROXIMATIONS):
        return median(type_, found)
    if pa.types.is_floating(type_):
        total = math.nan if {math.inf, -math.inf} <= set(found) else sum(found)
        return total if function == "sum" else total / len(found)
    exact = sum(Fraction(value) for value in found)
    return exact if function == "sum" else exact / len(found)


def variance(function: str, found: list[Any]) -> float | None:
    divisor = len(found) - (not function.endswith("_pop"))
    if not divisor:
        return None
    if not all(map(math.isfinite, found)):
        return math.nan
    exact = list(map(Fraction, found))
    mean = sum(exact) / len(exact)
    found_variance = float(sum((value - mean) ** 2 for value in exact) / divisor)
    return math.sqrt(found_variance) if function.startswith("stddev") else found_variance


def median(type_: pa.DataType, found: list[Any]) -> Any:
    ordered = sorted(found, key=lambda value: (is_nan(value), value))
    low, high = ordered[(len(found) - 1) // 2], ordered[len(found) // 2]
    if pa.types.is_floating(type_):
        return low if low == high else (low + high) / 2
    middle = (Fraction(low) + Fraction(high)) / 2
    return middle * 86_400 // 1 if pa.types.is_date32(type_) else middle


def result_type(function: str, type_: pa.DataType) -> pa.DataType:
    if function.startswith("count"):
        return pa.int64()
    if function in ("min", "max", "first", "last", "bool_and", "bool_or"):
        return type_
    if function in VARIANCES:
        return pa.float64()
    if function in QUANTILES:
        return quantile_type(type_)
    if function in APPROXIMATIONS:
        return estimate_type(type_)
    if pa.types.is_decimal(type_):
        if function == "mean":
            return type_
        wide = pa.types.is_decimal256(type_)
        return pa.decimal256(76, type_.scale) if wide else pa.decimal128(38, type_.scale)
    if pa.types.is_duration(type_):
        return type_
    if function == "mean" or pa.types.is_floating(type_):
        return pa.float64()
    return pa.uint64() if pa.types.is_uint64(type_) else pa.int64()


def agrees(result: Any, wanted: Any, function: str, type_: pa.DataType) -> bool:
    if wanted is None or result is None:
        return result is wanted
    if is_nan(wanted):
        return is_nan(result)
    if function == "mean" and pa.types.is_decimal(type_):
        return bool(abs(Fraction(result) - wanted) <= Fraction(1, 10**type_.scale))
    if function in QUANTILES and pa.types.is_decimal(type_):
        return bool(Fraction(result) * 10**type_.scale == nearest(wanted * 10**type_.scale))
    if function in ("mean", *QUANTILES) and pa.types.is_temporal(type_):
        return bool(result == nearest(wanted))
    if function in APPROXIMATIONS and pa.types.is_temporal(type_):
        return bool(abs(result - wanted) <= Fraction(1, 2))
    if function in VARIANCES:
        return math.isclose(result, wanted, rel_tol=1e-12)
    if isinstance(wanted, Fraction) and isinstance(result, float):
        return math.isclose(result, wanted, rel_tol=1e-15)
    return bool(result == wanted)


def nearest(value: Fraction) -> int:
    """Return the nearest integer; halves are rounded away from zero."""
    rounded = math.floor(abs(value) + Fraction(1, 2))
    return rounded if value >= 0 else -rounded


def groups_of(keys: list[Any]) -> dict[Any, list[int]]:
    """Return the rows of each key. Keys are in the order of their first rows."""
    rows: dict[Any, list[int]] = {}
    for row, key in enumerate(keys):
        rows.setdefault(key, []).append(row)
    return rows


# Any column


def by_key(kinds: Sequence[Kind], names: Sequence[str], result: pa.Table) -> dict[Any, int]:
    """Return the row of each key of a result, and check that no key is there twice."""
    columns = [kind.list(result[name]) for kind, name in zip(kinds, names, strict=True)]
    keys = [tuple(map(same, key)) for key in zip(*columns, strict=True)]
    assert len(set(keys)) == len(keys)
    return {key: row for row, key in enumerate(keys)}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.type))
@few_examples
@given(data=st.data())
def test_every_aggregate_of_every_type(kind: Kind, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.tuples(st.integers(0, 3), with_nulls(kind)), max_size=20))
    keys, values = [key for key, _ in rows], [value for _, value in rows]
    columns = [pa.array(keys, pa.int64()), kind.array(values)]
    table = pa.table([data.draw(chunked(column)) for column in columns], names=["k", "v"])
    functions = admitted(kind.type)

    result = group(table, ["k"], [aggregate(function) for function in functions])

    types = [result_type(function, kind.type) for function in functions]
    assert result.schema.names == ["k", *functions]
    assert result.schema.types == [pa.int64(), *types]
    groups = groups_of(keys)
    assert sorted(result["k"].to_pylist()) == sorted(groups)
    for function, type_ in zip(functions, types, strict=True):
        answers = Kind(type_, st.nothing()).list(result[function])
        for key, answer in zip(result["k"].to_pylist(), answers, strict=True):
            members = [values[row] for row in groups[key]]
            if function == "max" and 0 < sum(map(is_nan, members)) < len(members):
                continue  # whether NaN is above all numbers is not said anywhere
            wanted = expected(function, kind.type, members)
            assert agrees(answer, wanted, function, kind.type), (function, answer, wanted)


def assert_grouped(kinds: Sequence[Kind], rows: list[tuple[Any, ...]], data: st.DataObject) -> None:
    names = [f"k{i}" for i in range(len(kinds))]
    columns = [kind.array([row[i] for row in rows]) for i, kind in enumerate(kinds)]
    columns.append(pa.array(range(len(rows)), pa.int64()))
    table = pa.table([data.draw(chunked(column)) for column in columns], names=[*names, "v"])
    result = group(table, names, [aggregate("first"), aggregate("sum")])
    assert result.schema.types == [*(kind.type for kind in kinds), pa.int64(), pa.int64()]
    found = by_key(kinds, names, result)
    groups = groups_of([tuple(same(value) for value in row) for row in rows])
    assert found.keys() == groups.keys()
    for key, members in groups.items():
        assert result["first"][found[key]].as_py() == members[0]
        assert result["sum"][found[key]].as_py() == sum(members)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.type))
@few_examples
@given(data=st.data())
def test_every_type_can_be_a_key(kind: Kind, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.tuples(with_nulls(kind)), max_size=20))
    assert_grouped([kind], rows, data)


@examples
@given(data=st.data())
def test_several_columns_can_be_a_key(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(KINDS), min_size=2, max_size=4))
    rows = data.draw(st.lists(st.tuples(*map(with_nulls, kinds)), max_size=20))
    assert_grouped(kinds, rows, data)


def test_results_have_one_zero_and_one_nan_as_keys() -> None:
    table = pa.table({"k": [-0.0, 0.0, math.nan, -math.nan, None]})
    keys = group(table, ["k"], [])["k"].to_pylist()
    assert sorted(map(repr, keys)) == ["0.0", "None", "nan"]


def test_without_aggregates_the_result_is_the_distinct_keys() -> None:
    table = pa.table({"k": ["b", "a", "b"], "v": [1, 2, 3]})
    assert group(table, ["k"], []).sort_by("k").to_pydict() == {"k": ["a", "b"]}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.type))
def test_without_rows_the_schema_is_the_same(kind: Kind) -> None:
    table = pa.table({"k": kind.array([None, None]), "v": kind.array([None, None])})
    aggregates = [aggregate(function) for function in admitted(kind.type)]
    with_rows = group(table, ["k"], aggregates).schema
    assert group(table.slice(0, 0), ["k"], aggregates).schema == with_rows
    assert group(table.schema.empty_table(), ["k"], aggregates).schema == with_rows


def test_columns_may_have_names_that_are_used_internally() -> None:
    table = pa.table({"key0": [1, 1], "value0": [2, 3], "value1": ["a", "b"]})
    aggregates = [Aggregate("key1", "sum", "value0"), Aggregate("value0", "last", "value1")]
    result = group(table, ["key0"], aggregates)
    assert result.to_pydict() == {"key0": [1], "key1": [5], "value0": ["b"]}


@pytest.mark.parametrize("type_", [pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_first_and_last_of_a_key_are_the_values_of_its_rows(type_: pa.DataType) -> None:
    """Both zeros are the key 0.0, but an aggregate of the same column keeps the sign."""
    for keys in ([0.0, -0.0], [-0.0, 0.0, 0.0], [-0.0]):
        table = pa.table({"k": pa.array(np.array(keys), pa.float64()).cast(type_)})
        aggregates = [Aggregate("first", "first", "k"), Aggregate("last", "last", "k")]
        plan = plan_partials(table.schema, ["k"], aggregates)
        assert plan is not None
        rows = pa.Table.from_batches([plan.from_rows(each) for each in table.to_batches()])
        combined = plan.combine(rows)
        assert combined is not None
        for result in (group(table, ["k"], aggregates), plan.finish(rows), plan.finish(combined)):
            assert str(result.to_pylist()) == str([{"k": 0.0, "first": keys[0], "last": keys[-1]}])


def test_a_key_can_be_aggregated() -> None:
    table = pa.table({"k": [3, 3, None]})
    aggregates = [Aggregate("n", "count", "k"), Aggregate("sum", "sum", "k")]
    assert group(table, ["k"], aggregates).sort_by("k").to_pydict() == {
        "k": [3, None],
        "n": [2, 0],
        "sum": [6, None],
    }


@pytest.mark.parametrize(
    "values", [[[1], None, []], [{"x": 1}, None, {"x": None}]], ids=["list", "struct"]
)
def test_nested_values_are_counted(values: list[Any]) -> None:
    table = pa.table({"k": [1, 1, 1], "v": values})
    assert group(table, ["k"], [Aggregate("n", "count", "v")])["n"].to_pylist() == [2]


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
    with pytest.raises(JobError, match=r"^reduce\.aggregate\.x: "):
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
