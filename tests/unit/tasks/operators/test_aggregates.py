"""Aggregates are parsed from calls, and refused if a column does not support them."""

from __future__ import annotations

from itertools import product

import duckdb
import pyarrow as pa
import pytest
from hypothesis import settings

from mrflight.compute.layout import canonical_schema
from mrflight.config.aggregates import (
    APPROXIMATIONS,
    FUNCTIONS,
    QUANTILES,
    SYNONYMS,
    VARIANCES,
    parse_aggregate,
)
from mrflight.errors import ColumnNotFoundError, JobError, JobFileError, SchemaMismatchError
from mrflight.tasks.operators.aggregates import check_aggregates
from mrflight.tasks.operators.grouping import group
from tests.support.suite.cases import cases
from tests.support.suite.examples import some_of
from tests.support.suite.messages import refused

examples = settings(max_examples=some_of(200), derandomize=True)

SCHEMA = canonical_schema(
    pa.schema(
        {
            "url": pa.string(),
            "weight": pa.int64(),
            "ratio": pa.float64(),
            "price": pa.decimal128(12, 2),
            "ok": pa.bool_(),
            "took": pa.duration("ms"),
            "at": pa.timestamp("us"),
            "day": pa.date32(),
            "tags": pa.list_(pa.string()),
            "place": pa.struct({"x": pa.int64()}),
            "coded": pa.dictionary(pa.int8(), pa.string()),
            "coded_number": pa.dictionary(pa.int8(), pa.int64()),
            "span": pa.month_day_nano_interval(),
        }
    )
)
NUMBERS = ["weight", "ratio", "price", "ok", "coded_number"]
TIMES = ["took", "at", "day"]
NESTED = ["tags", "place"]

LIMITED: list[tuple[tuple[str, ...], list[str]]] = [
    (("sum", "mean"), [*NUMBERS, "took"]),
    (VARIANCES, NUMBERS),
    ((*QUANTILES, *APPROXIMATIONS), [*NUMBERS, *TIMES]),
    (("bool_and", "bool_or"), ["ok"]),
]
"""Functions that do not take every column, and the columns that they take."""


def call_of(function: str, column: str) -> str:
    return f"{function}({column}{', 0.9' if function.endswith('quantile') else ''})"


@pytest.mark.parametrize("function", [name for name in SYNONYMS if name != "std"])
def test_a_synonym_gives_what_duckdb_gives(function: str) -> None:
    given = pa.table({"k": [1, 1, 1, 2, 3, 3], "v": pa.array([None, 7, 7, None, 4, 4], pa.int64())})
    call = f"{function}(v{', 0.75' if function.startswith('quantile') else ''})"
    query = f"select k, {call} as x from given group by k order by k"
    with duckdb.connect() as database:
        database.register("given", given)
        expected = database.execute(query).fetchall()
    result = group(given, ["k"], [parse_aggregate("x", call)]).sort_by("k")
    assert [(row["k"], row["x"]) for row in result.to_pylist()] == expected


def test_functions_take_the_columns_for_which_they_mean_something() -> None:
    with cases() as case:
        for function, column in product(FUNCTIONS, [*NUMBERS, *TIMES, "url", "coded"]):
            with case(call_of(function, column)):
                aggregate = parse_aggregate("x", call_of(function, column))
                if all(column in columns for names, columns in LIMITED if function in names):
                    check_aggregates(SCHEMA, ("url",), (aggregate,))
                    continue
                with pytest.raises(JobFileError, match=f"{function} of {column!r}, which") as told:
                    check_aggregates(SCHEMA, ("url",), (aggregate,))
                assert told.value.key == "reduce.aggregate.x"


@pytest.mark.parametrize("column", NESTED)
def test_nested_columns_are_only_counted(column: str) -> None:
    for function in FUNCTIONS:
        aggregate = parse_aggregate("x", call_of(function, column))
        if function == "count":
            check_aggregates(SCHEMA, ("url",), (aggregate,))
            continue
        with refused(JobFileError, "reduce.aggregate.x"):
            check_aggregates(SCHEMA, ("url",), (aggregate,))


def test_rows_are_counted_whatever_the_columns() -> None:
    check_aggregates(pa.schema({"url": pa.string()}), ("url",), (parse_aggregate("n", "count(*)"),))


def test_a_missing_column_is_named_with_the_existing_ones() -> None:
    with refused(ColumnNotFoundError, "reduce.aggregate.x"):
        check_aggregates(SCHEMA, ("url",), (parse_aggregate("x", "sum(wieght)"),))


def test_a_missing_group_column_is_named_with_the_existing_ones() -> None:
    with refused(ColumnNotFoundError, "reduce.group_by"):
        check_aggregates(SCHEMA, ("ulr",), ())


@pytest.mark.parametrize("column", [*NESTED, "span"])
def test_columns_that_cannot_be_grouped_by_are_refused(column: str) -> None:
    with pytest.raises(JobError, match=column):
        check_aggregates(SCHEMA, ("url", column), ())


@pytest.mark.parametrize("function", ["min", "max"])
def test_intervals_have_no_min_and_max(function: str) -> None:
    with refused(JobFileError, "reduce.aggregate.x"):
        check_aggregates(SCHEMA, ("url",), (parse_aggregate("x", f"{function}(span)"),))


@pytest.mark.parametrize(("group_by", "text"), [("url", "sum(weight)"), ("weight", "count(*)")])
def test_a_duplicate_column_is_refused(group_by: str, text: str) -> None:
    twice = pa.schema([("url", pa.string()), ("weight", pa.int64()), ("weight", pa.int64())])
    with pytest.raises(JobError, match="'weight'"):
        check_aggregates(twice, (group_by,), (parse_aggregate("x", text),))


def test_rows_without_groups_are_counted_by_a_unique_column() -> None:
    count = (parse_aggregate("n", "count(*)"),)
    twice = pa.schema([("a", pa.int64()), ("a", pa.int64())])
    with refused(SchemaMismatchError, "reduce.aggregate"):
        check_aggregates(twice, (), count)
    check_aggregates(pa.schema([("b", pa.int64()), *twice]), (), count)
