"""Mistakes in expressions and columns are named by their call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import datafusion
import polars as pl
import pytest
from datafusion import functions as f

from mrflight import Dataset, col, lit
from mrflight.errors import ColumnNotFoundError, JobError, JobFileError
from tests.support.queries.mapped_rows import all_of
from tests.support.suite.messages import refused

MISTAKES: list[tuple[Callable[[Dataset], object], type[JobError], str]] = [
    (
        lambda rows: rows.filter("wieght > 3").schema,
        ColumnNotFoundError,
        "filter(\"wieght > 3\"): visits has no column 'wieght'; did you mean 'weight'? It has",
    ),
    (
        lambda rows: rows.filter(datafusion.col("Price") > 3).schema,
        ColumnNotFoundError,
        "filter(price > Int64(3)): visits has no column 'price'; did you mean 'Price'? It has",
    ),
    (
        lambda rows: rows.select("url").filter("weight > 3").schema,
        ColumnNotFoundError,
        "filter(\"weight > 3\"): visits has no column 'weight'; it has 'url'",
    ),
    (
        lambda rows: rows.select(n="weight * prize", other="url").filter("n > 1").schema,
        ColumnNotFoundError,
        'select(n="weight * prize", other="url"): visits has no column \'prize\'; did you mean',
    ),
    (
        lambda rows: rows.filter("url > 1", "weight + day").schema,
        JobFileError,
        'filter("url > 1", "weight + day"): ',
    ),
    (
        lambda rows: rows.filter("url = 'a'", "weight").schema,
        JobFileError,
        "filter(\"url = 'a'\", \"weight\"): 'weight' is int64 and not a condition; compare it with",
    ),
    (
        lambda rows: rows.filter("weight > 3) or (true").schema,
        JobFileError,
        'filter("weight > 3) or (true"): SQL error',
    ),
    (lambda rows: rows.filter("a = 1; drop table x").schema, JobFileError, 'filter("a = 1; drop'),
    (lambda rows: rows.filter(), JobFileError, "filter needs a condition; write filter("),
    (lambda rows: rows.filter(" "), JobFileError, "filter: ' ' is neither SQL text nor an expr"),
    (lambda rows: rows.filter(True), JobFileError, "filter: True is neither SQL text nor an exp"),
    (
        lambda rows: rows.filter(pl.col("weight") > 3),
        JobFileError,
        "filter: <Expr ",
    ),
    (lambda rows: rows.select(), JobFileError, "select needs a column; write select("),
    (lambda rows: rows.with_columns(), JobFileError, "with_columns needs a column; write with_c"),
    (
        lambda rows: rows.with_columns("weight * 2").schema,
        JobFileError,
        "with_columns(\"weight * 2\"): 'weight * 2' needs a name; write name='weight * 2'",
    ),
    (
        lambda rows: rows.select("url", url="weight").schema,
        JobFileError,
        'select("url", url="weight"): 2 columns would be named \'url\'; rename one',
    ),
    (
        lambda rows: rows.rename(weight="url").schema,
        JobFileError,
        "rename(weight=\"url\"): 2 columns would be named 'url'; rename one",
    ),
    (
        lambda rows: rows.rename({"Weights": "w"}).schema,
        ColumnNotFoundError,
        "rename(Weights=\"w\"): visits has no column 'Weights'; did you mean 'weight'?",
    ),
    (lambda rows: rows.rename(), JobFileError, "rename needs old and new names; write rename({"),
    (lambda rows: rows.rename({"a": 1}), JobFileError, "rename: 1 is not the name of a column"),  # type: ignore[dict-item]
    (
        lambda rows: rows.drop("urls").schema,
        ColumnNotFoundError,
        "drop(\"urls\"): visits has no column 'urls'; did you mean 'url'?",
    ),
    (
        lambda rows: rows.select("url").drop("url").schema,
        JobFileError,
        'drop("url"): no column is left; keep at least one',
    ),
    (lambda rows: rows.drop(), JobFileError, "drop needs a column; write drop("),
    (
        lambda rows: all_of(rows.select("url").filter("cast(url as int) > 1")),
        JobFileError,
        'select("url").filter("cast(url as int) > 1"): Arrow error: Cast error: Cannot cast string',
    ),
]

NOT_OF_A_ROW: list[tuple[Any, str]] = [
    ("sum(weight) > 3", "aggregates rows; aggregate in a reduce: group_by and agg"),
    (f.abs(f.sum(col("weight"))) > 3, "aggregates rows; aggregate in a reduce: group_by and agg"),
    ("row_number() over () > 1", "uses a window over several rows"),
    (f.row_number() > lit(1), "uses a window over several rows"),
    ("weight > (select 1)", "has a subquery over other rows"),
    ("weight in (select 1)", "has a subquery over other rows"),
    ("exists (select 1)", "has a subquery over other rows"),
    ("weight > all(select 1)", "has a subquery over other rows"),
    ("coalesce(unnest(tags), '') = 'p'", "makes several rows of one; use a query: select unnest("),
    ("weight = $1", "is of a kind that is not supported, Placeholder"),
]


@pytest.mark.parametrize(("make", "kind", "message"), MISTAKES)
def test_a_mistake_is_named_by_its_call(
    visits: Dataset, make: Callable[[Dataset], object], kind: type[JobError], message: str
) -> None:
    with pytest.raises(kind) as caught:
        make(visits)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(("condition", "reason"), NOT_OF_A_ROW)
def test_an_expression_of_several_rows_is_refused(
    visits: Dataset, condition: Any, reason: str
) -> None:
    with refused(JobFileError) as caught:
        _ = visits.filter(condition).schema
    assert str(caught.value).startswith("filter")
    assert reason in str(caught.value)


def test_an_order_is_not_an_expression(visits: Dataset) -> None:
    with refused(JobFileError):
        visits.select(col("url").sort())
