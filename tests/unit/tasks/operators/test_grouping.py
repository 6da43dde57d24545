"""Groups and aggregates equal those of a dictionary of lists, for every type of column."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.config.aggregates import Aggregate
from mrflight.tasks.operators.grouping import group
from mrflight.tasks.operators.partial_aggregates import plan_partials
from tests.support.queries.aggregate_oracle import agrees, expected, groups_of, is_nan, result_type
from tests.support.queries.column_kinds import (
    KINDS,
    Kind,
    admitted,
    aggregate,
    chunked,
    same,
    with_nulls,
)
from tests.support.suite.examples import some_of

few_examples = settings(max_examples=some_of(16), derandomize=True)
examples = settings(max_examples=some_of(60), derandomize=True)


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
