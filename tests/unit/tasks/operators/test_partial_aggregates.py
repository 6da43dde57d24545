"""Partial aggregates give the same result as all rows at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.compute.packed_floats import PACKED
from mrflight.config.aggregates import Aggregate
from mrflight.errors import JobError
from mrflight.tasks.operators.grouping import group
from mrflight.tasks.operators.partial_aggregates import (
    PartialAggregates,
    concat_partial_rows,
    infer_partials,
    plan_all_partials,
    plan_partials,
)
from mrflight.tasks.operators.partial_columns import Part, needed_columns
from tests.support.queries.column_kinds import KINDS, Kind, admitted, aggregate, same, with_nulls
from tests.support.suite.examples import some_of
from tests.support.suite.messages import refused

few_examples = settings(max_examples=some_of(16), derandomize=True)
examples = settings(max_examples=some_of(60), derandomize=True)

INT64_MAX = 2**63 - 1


def batches_of(table: pa.Table, cuts: Sequence[int]) -> list[pa.RecordBatch]:
    """Return the rows in batches. No batch is empty unless there are no rows."""
    bounds = sorted({0, *cuts, table.num_rows})
    pieces = [table.slice(a, b - a).combine_chunks() for a, b in pairwise(bounds)]
    return [batch for piece in pieces for batch in piece.to_batches()]


def plain_values(column: pa.ChunkedArray, kind: Kind) -> list[Any]:
    """Return values that can be compared: times as numbers, and one NaN that equals itself."""
    values = (kind if column.type == kind.type else Kind(column.type, st.nothing())).list(column)
    return [same(value) for value in values]


def rows_by_key(result: pa.Table, kind: Kind) -> dict[Any, tuple[Any, ...]]:
    """Return the aggregates of each key, and check that no key is there twice."""
    columns = [plain_values(column, kind) for column in result.columns[1:]]
    rows = dict(zip(result["k"].to_pylist(), zip(*columns, strict=True), strict=True))
    assert len(rows) == result.num_rows
    return rows


def assert_same(result: pa.Table, wanted: pa.Table, kind: Kind) -> None:
    """Assert that results are equal, except that sums, means and variances may be close."""
    assert result.schema == wanted.schema
    found, expected = rows_by_key(result, kind), rows_by_key(wanted, kind)
    assert found.keys() == expected.keys()
    for key, row in expected.items():
        for name, value, other in zip(wanted.column_names[1:], row, found[key], strict=True):
            if isinstance(value, float) and isinstance(other, float):
                assert math.isclose(value, other, rel_tol=1e-12), (name, key, value, other)
            else:
                assert value == other, (name, key, value, other)


def reduce_maps(
    plan: PartialAggregates, maps: Sequence[Sequence[pa.RecordBatch]], merges: st.DataObject
) -> pa.Table:
    """Return the result for the batches of several maps, some of which are combined."""
    sent: list[pa.Table] = []
    for batches in maps:
        rows = [pa.Table.from_batches([plan.from_rows(batch)]) for batch in batches]
        for table in [*rows, *([pa.concat_tables(rows)] if rows else [])]:
            assert table.schema == plan.schema
        together = merges.draw(st.booleans())
        for table in [pa.concat_tables(rows)] if together and rows else rows:
            combined = plan.combine(table) if merges.draw(st.booleans()) else None
            assert combined is None or combined.schema == plan.schema
            sent.append(table if combined is None else combined)
    if not sent:
        return plan.finish(plan.schema.empty_table())
    return plan.finish(pa.concat_tables(sent))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.type))
@few_examples
@given(data=st.data())
def test_partial_aggregates_give_the_result_of_all_rows(kind: Kind, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.tuples(st.integers(0, 3), with_nulls(kind)), max_size=20))
    table = pa.table(
        {"k": pa.array([key for key, _ in rows], pa.int64()), "v": kind.array([v for _, v in rows])}
    )
    aggregates = [each for each in map(aggregate, admitted(kind.type)) if not each.needs_all_rows]
    aggregates.append(Aggregate("rows", "count", None))
    is_rounded = pa.types.is_decimal(kind.type)
    if is_rounded:
        assert plan_partials(table.schema, ["k"], aggregates) is None
        aggregates = [each for each in aggregates if each.function != "mean"]
    plan = plan_partials(table.schema, ["k"], aggregates)
    assert plan is not None
    assert infer_partials(plan.schema, ["k"], aggregates) == plan
    cuts = st.lists(st.integers(0, len(rows)), max_size=4)
    maps = [[batch] for batch in batches_of(table, data.draw(cuts))]
    maps = [batches_of(pa.Table.from_batches(m), data.draw(cuts)) for m in maps]
    assert_same(reduce_maps(plan, maps, data), group(table, ["k"], aggregates), kind)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.type))
@few_examples
@given(data=st.data())
def test_every_aggregate_has_partials_within_a_process(kind: Kind, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.tuples(st.integers(0, 3), with_nulls(kind)), max_size=20))
    values = kind.array([value for _, value in rows])
    table = pa.table({"k": pa.array([key for key, _ in rows], pa.int64()), "v": values})
    aggregates = [aggregate(function) for function in admitted(kind.type)]
    plan = plan_all_partials(table.schema, ["k"], aggregates)
    parts = [plan.schema.empty_table()]
    for batch in batches_of(table, data.draw(st.lists(st.integers(0, len(rows)), max_size=4))):
        part = pa.Table.from_batches([plan.from_rows(batch)])
        parts.append(plan.combine_widening(part) if data.draw(st.booleans()) else part)
    whole = group(table, ["k"], [each for each in aggregates if each.function == "median"])
    if "median" in whole.column_names:
        keys = whole.combine_chunks().to_batches()
        median = Part("quantile", "v", 0.5)
        found = [plan.from_results(batch, {median: batch["median"]}) for batch in keys]
        parts += [pa.Table.from_batches([batch]) for batch in found]
    if "count_distinct" in admitted(kind.type):
        pairs = group(table, ["k", "v"], []).to_batches()
        parts += [pa.Table.from_batches([plan.from_distinct(batch, "v")]) for batch in pairs]
    try:
        wanted = group(table, ["k"], aggregates)
    except JobError:
        with pytest.raises(JobError):
            plan.finish(concat_partial_rows(parts))
        return
    assert_same(plan.finish(concat_partial_rows(parts)), wanted, kind)


@pytest.mark.parametrize(
    ("kind", "function"),
    [
        (pa.int64(), "count_distinct"),
        (pa.int64(), "median"),
        (pa.float64(), "quantile"),
        (pa.decimal64(12, 2), "mean"),
        (pa.decimal256(50, 2), "mean"),
    ],
    ids=str,
)
def test_aggregates_that_need_all_rows_are_not_combined(kind: pa.DataType, function: str) -> None:
    schema = pa.schema({"k": pa.string(), "v": kind})
    aggregates = [aggregate("sum"), aggregate(function)]
    assert plan_partials(schema, ["k"], aggregates) is None
    assert plan_partials(schema, ["k"], aggregates[:1]) is not None


def test_aggregates_share_columns() -> None:
    schema = pa.schema({"k": pa.string(), "v": pa.int32(), "w": pa.float32(), "x": pa.bool_()})
    aggregates = [
        Aggregate("a", "mean", "v"),
        Aggregate("b", "sum", "v"),
        Aggregate("c", "count", "v"),
        Aggregate("d", "max", "w"),
        Aggregate("e", "stddev", "v"),
        Aggregate("f", "var_pop", "v"),
        Aggregate("g", "approx_quantile", "w", 0.9),
        Aggregate("h", "approx_median", "w"),
        Aggregate("i", "bool_or", "x"),
    ]
    plan = plan_partials(schema, ["k"], aggregates)
    assert plan is not None
    assert plan.schema == pa.schema(
        {
            "k": pa.string(),
            "sum('v')": pa.int64(),
            "count('v')": pa.int32(),
            "max('w')": pa.float32(),
            "moments('v')": PACKED,
            "digest('w')": PACKED,
            "any_value('w')": pa.float32(),
            "max('x')": pa.bool_(),
        }
    )


@pytest.mark.parametrize("kind", [pa.int64(), pa.decimal128(25, 2)], ids=str)
def test_partial_rows_do_not_copy_values(kind: pa.DataType) -> None:
    batch = pa.record_batch({"k": ["a", "b", "c"], "v": pa.array([1, None, -2]).cast(kind)})
    plan = plan_partials(batch.schema, ["k"], [aggregate("sum"), aggregate("last")])
    assert plan is not None
    made = plan.from_rows(batch)
    for name, column in (("k", "k"), ("sum('v')", "v"), ("last('v')", "v")):
        addresses = [buffer and buffer.address for buffer in made[name].buffers()]
        assert addresses == [buffer and buffer.address for buffer in batch[column].buffers()]


NAMES = st.sampled_from(["k", "v", "sum('v')", "count(*)", "sum('k')", "sum(\"sum('v')\")"])


@examples
@given(
    keys=st.lists(NAMES, min_size=1, max_size=3, unique=True),
    columns=st.lists(st.none() | NAMES, max_size=3, unique=True),
)
def test_plain_rows_are_never_taken_for_partial_rows(
    keys: list[str], columns: list[str | None]
) -> None:
    aggregates = [
        Aggregate(f"a{i}", "count" if column is None else "sum", column)
        for i, column in enumerate(columns)
    ]
    schema = pa.schema({name: pa.int64() for name in needed_columns(keys, aggregates)})
    plan = plan_partials(schema, keys, aggregates)
    assert plan is not None
    assert infer_partials(plan.schema, keys, aggregates) == plan
    rows = pa.table({name: [1, 1] for name in schema.names}).to_batches()[0]
    result = plan.finish(pa.Table.from_batches([plan.from_rows(rows)]))
    assert result == group(pa.Table.from_batches([rows]), keys, aggregates)
    if aggregates:
        assert infer_partials(schema, keys, aggregates) is None


# Sums at the ends of their types


def rows_of(plan: PartialAggregates, table: pa.Table) -> pa.Table:
    return pa.Table.from_batches([plan.from_rows(batch) for batch in table.to_batches()])


@pytest.mark.parametrize(
    ("kind", "most"),
    [
        (pa.int64(), INT64_MAX),
        (pa.uint64(), 2**64 - 1),
        (pa.duration("s"), INT64_MAX),
        (pa.decimal128(38, 0), Decimal("9" * 38)),
    ],
    ids=str,
)
def test_sums_that_do_not_fit_are_not_combined(kind: pa.DataType, most: Any) -> None:
    negated = most.copy_negate() if isinstance(most, Decimal) else -most
    values = Kind(kind, st.nothing()).array([most, most, 0 if kind == pa.uint64() else negated])
    table = pa.table({"k": [1, 1, 1], "v": values})
    plan = plan_partials(table.schema, ["k"], [aggregate("sum")])
    assert plan is not None
    rows = rows_of(plan, table)
    assert plan.combine(rows.slice(0, 2)) is None
    combined = plan.combine_widening(rows.slice(0, 2))
    assert combined.num_rows == 1
    both = concat_partial_rows([combined, rows.slice(2)])
    if kind == pa.uint64():
        with refused(JobError, "reduce.aggregate.sum"):
            plan.finish(both)
        return
    assert plan.finish(both)["sum"] == pa.chunked_array([values.slice(0, 1)])
    # The sum of all three fits, whatever it is on the way.
    fitting = plan.combine(rows)
    assert fitting is not None
    assert fitting.schema == plan.schema
    assert plan.finish(fitting)["sum"] == pa.chunked_array([values.slice(0, 1)])


def test_counts_on_the_wire_do_not_wrap_around() -> None:
    schema = pa.schema({"k": pa.int64()})
    plan = plan_partials(schema, ["k"], [Aggregate("n", "count", None)])
    assert plan is not None
    counted = pa.table({"k": [1, 1], "count(*)": pa.array([2**31 - 1, 1], pa.int32())})
    assert plan.combine(counted) is None
    assert plan.finish(counted).to_pydict() == {"k": [1], "n": [2**31]}
    counted = pa.table({"k": [1, 1], "count(*)": pa.array([2**29, 1], pa.int32())})
    combined = plan.combine(counted)
    assert combined is not None
    assert combined.to_pydict() == {"k": [1], "count(*)": [2**29 + 1]}


def test_sums_of_77_digits_name_the_aggregate() -> None:
    most = Decimal("9" * 76)
    table = pa.table({"k": [1, 1], "v": pa.array([most, most], pa.decimal256(76, 0))})
    plan = plan_partials(table.schema, ["k"], [Aggregate("total", "sum", "v")])
    assert plan is not None
    assert plan.combine(rows_of(plan, table)) is None
    with refused(JobError, "reduce.aggregate.total"):
        plan.finish(rows_of(plan, table))


@pytest.mark.parametrize("values", [[[1], None, []], [{"x": 1}, None, {"x": None}]], ids=str)
def test_nested_values_are_counted(values: list[Any]) -> None:
    table = pa.table({"k": [1, 1, 1], "v": values})
    plan = plan_partials(table.schema, ["k"], [Aggregate("n", "count", "v")])
    assert plan is not None
    combined = plan.combine(rows_of(plan, table))
    assert combined is not None
    assert plan.finish(combined)["n"].to_pylist() == [2]
