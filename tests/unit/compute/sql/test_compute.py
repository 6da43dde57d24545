"""The expressions in aggregates are computed in 64 bits, beside the columns as they are."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa
import pytest

from mrflight.compute.sql.map import SqlMap
from mrflight.compute.sql.row_steps import RowSteps
from mrflight.config.row_steps import Compute
from mrflight.errors import ColumnNotFoundError, JobFileError
from tests.support.suite.messages import refused

TABLE = pa.table(
    {
        "price": pa.array([2**31 - 1, None, 7], pa.int32()),
        "n": pa.array([200, 3, 4], pa.uint8()),
        "w": pa.array([0.5, 1.5, None]),
        "#price": pa.array([1, 2, 3], pa.int16()),
        "user-id": pa.array([1, 1, 2]),
        "place": [{"zip": 7}, None, {"zip": 9}],
    }
)


def compute(texts: Sequence[str]) -> pa.Table:
    steps = tuple(Compute(call=f"x{i}", table="t", text=text) for i, text in enumerate(texts))
    return pa.Table.from_batches(SqlMap(RowSteps(steps), "t", "x").stream(iter(TABLE.to_batches())))


@pytest.mark.parametrize(
    ("text", "wide"),
    [
        ("price * n", "price::bigint * n::bigint"),
        ("t.price + 1", "price::bigint + 1"),
        ('"#price" - n', '"#price"::bigint - n::bigint'),
        ("w * n", "w * n"),
        ("case when w > 1 then price end", "case when w > 1 then price::bigint end"),
        ("price is null or n > 100", "price is null or n > 100"),
        ("1", "1::bigint"),
        ("place['zip'] + n", "place['zip'] + n::bigint"),
    ],
)
def test_values_match_sql(text: str, wide: str) -> None:
    given = TABLE
    with duckdb.connect() as database:
        database.register("given", given)
        wanted = database.sql(f"select {wide} as x from given").to_arrow_table()
    found = compute([text])
    assert found.drop_columns(text) == TABLE
    assert found[text].combine_chunks() == wanted["x"].combine_chunks()


def test_several_expressions_are_one_query() -> None:
    found = compute(["price * n", "w + n", "user-id"])
    assert found.column_names == [*TABLE.column_names, "price * n", "w + n"]
    assert found.select(TABLE.column_names) == TABLE


@pytest.mark.parametrize("text", ["max(price)", "price +", "a b", "price, n", "sum(price) over ()"])
def test_what_is_no_expression_of_a_row_is_refused(text: str) -> None:
    with pytest.raises(JobFileError, match=r"^x0: "):
        compute([text])


def test_an_unknown_column_is_named() -> None:
    with refused(ColumnNotFoundError):
        compute(["prise * n"])
