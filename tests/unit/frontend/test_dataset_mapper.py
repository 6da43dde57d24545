"""Expressions map rows as Polars and DuckDB do, and mistakes are named by their call."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from datafusion import functions as f
from hypothesis import given, settings
from hypothesis import strategies as st

import mrflight
from mrflight import Dataset, col, lit
from mrflight.frontend.dataset_writer import TO_CALLER
from mrflight.frontend.first_rows import plan_here
from tests.support.queries.mapped_rows import ROWS, all_of
from tests.support.suite.examples import some_of

STEPS: dict[str, tuple[Callable[[Dataset], Dataset], Callable[[pl.DataFrame], pl.DataFrame]]] = {
    "a condition drops nulls": (
        lambda rows: rows.filter("weight > 3"),
        lambda rows: rows.filter(pl.col("weight") > 3),
    ),
    "all conditions": (
        lambda rows: rows.filter("weight > 0", col("Price") < 2, "url like 'a%'"),
        lambda rows: rows.filter(pl.col("weight") > 0, pl.col("Price") < 2, pl.col("url") == "a"),
    ),
    "a column is a condition": (
        lambda rows: rows.filter("select"),
        lambda rows: rows.filter(pl.col("select")),
    ),
    "not null": (
        lambda rows: rows.filter("not (weight > 3)"),
        lambda rows: rows.filter(~(pl.col("weight") > 3)),
    ),
    "names of columns are no expressions": (
        lambda rows: rows.select("n of", 'q"u.x', "select", p="n of"),
        lambda rows: rows.select("n of", 'q"u.x', "select", p="n of"),
    ),
    "names are found in expressions": (
        lambda rows: rows.select(a='"n of" + 1', b='"q""u.x" || \'!\'', c='not "select"'),
        lambda rows: rows.select(
            a=pl.col("n of").cast(pl.Int64) + 1,
            b=pl.col('q"u.x') + "!",
            c=~pl.col("select"),
        ),
    ),
    "a list, a mapping, all": (
        lambda rows: rows.select(["url", "Price as p"], {"the weight": "weight * 2"}).select("*"),
        lambda rows: rows.select(
            "url", pl.col("Price").alias("p"), (pl.col("weight") * 2).alias("the weight")
        ),
    ),
    "columns see the rows as they were": (
        lambda rows: rows.select("weight", "url").with_columns(weight="weight + 1", w="weight"),
        lambda rows: rows.select("weight", "url").with_columns(
            weight=pl.col("weight") + 1, w="weight"
        ),
    ),
    "columns by alias": (
        lambda rows: rows.select("url").with_columns(col("url").alias("u"), "upper(url) as v"),
        lambda rows: rows.select("url").with_columns(
            pl.col("url").alias("u"), pl.col("url").str.to_uppercase().alias("v")
        ),
    ),
    "names are swapped": (
        lambda rows: rows.rename({"url": 'q"u.x', 'q"u.x': "url"}, weight="Weight"),
        lambda rows: rows.rename({"url": 'q"u.x', 'q"u.x': "url", "weight": "Weight"}),
    ),
    "columns are dropped": (
        lambda rows: rows.drop("url", ["n of", 'q"u.x']).drop("select"),
        lambda rows: rows.drop("url", "n of", 'q"u.x').drop("select"),
    ),
    "rows of a made column": (
        lambda rows: rows.with_columns(total="weight * 2").filter("visits.total > 2").drop("url"),
        lambda rows: (
            rows.with_columns(total=pl.col("weight") * 2).filter(pl.col("total") > 2).drop("url")
        ),
    ),
}


@pytest.mark.parametrize(("step", "wanted"), STEPS.values(), ids=list(STEPS))
def test_a_step_gives_the_rows_of_polars(
    visits: Dataset,
    step: Callable[[Dataset], Dataset],
    wanted: Callable[[pl.DataFrame], pl.DataFrame],
) -> None:
    rows = step(visits)
    polars = wanted(pl.DataFrame(ROWS))
    found = all_of(rows)
    assert pl.DataFrame(found).equals(polars)
    assert (rows.schema, found.column_names) == (found.schema, polars.columns)


def test_an_unnamed_expression_is_named_by_its_text(visits: Dataset) -> None:
    rows = visits.select("weight * 2", col("weight") * 3, "Price")
    assert rows.schema.names == ["weight * 2", "weight * Int64(3)", "Price"]


def tripled(numbers: pa.Array) -> pa.Array:
    return pa.array([None if each is None else 3 * each for each in numbers.to_pylist()])


of_python = datafusion.udf(tripled, [pa.int64()], pa.int64(), "immutable", name="tripled")

EXPRESSIONS = [
    col("weight") > 3,
    (col("weight") > lit(3)) & ~(col("url") == "b") | col("select"),
    col("weight").between(lit(1), lit(4)),
    f.in_list(col("url"), [lit("a"), lit("x")], negated=True),
    col("url").is_null(),
    col("Price").is_not_null(),
    col("weight") / 2 + col("weight") % 3 - 1,
    col("n of") * lit(pa.scalar(2, pa.int8())),
    col("cost") * lit(Decimal("1.10")),
    f.upper(col("url")),
    f.coalesce(col("weight"), lit(0)),
    col("url").fill_null("?"),
    f.regexp_like(col("url"), lit("^a")),
    f.substring(col("url"), lit(1), lit(1)),
    f.date_trunc(lit("month"), col("at")),
    f.date_part(lit("year"), col("day")),
    col("day") >= lit(date(2024, 1, 1)),
    col("at") < lit(datetime(2024, 1, 1, 12, tzinfo=UTC)),
    col("at") - lit(timedelta(hours=1)),
    f.when(col("weight") > 3, lit("big")).otherwise(lit("small")),
    f.case(col("url")).when(lit("a"), lit(1)).end(),
    col("weight").cast(pa.string()),
    col("url").try_cast(pa.int64()),
    col("place")["x"],
    col("tags")[0],
    f.array_length(col("tags")),
    f.make_array(col("weight"), lit(1)),
    f.named_struct([("w", col("weight"))]),
    lit(b"ab"),
    lit(None),
    lit("o'x"),
    lit(float("nan")),
    lit(2**40),
    of_python(col("weight")),
]


def test_expressions_of_datafusion_give_what_datafusion_gives(visits: Dataset) -> None:
    named = {f"c{number}": each for number, each in enumerate(EXPRESSIONS)}
    found = all_of(visits.select(**named))
    session = datafusion.SessionContext()
    rows = session.from_arrow(ROWS, name="visits")
    wanted = rows.select(*(each.alias(name) for name, each in named.items())).to_arrow_table()
    for name, each in named.items():
        assert (name, found[name].to_pylist()) == (name, _nan_safe(wanted[name].to_pylist())), each
        is_text = pa.types.is_string_view(wanted[name].type)
        assert found.field(name).type == (pa.string() if is_text else wanted.field(name).type), each


class _Nan(float):
    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and other != other

    __hash__ = float.__hash__


def _nan_safe(values: list[Any]) -> list[Any]:
    return [_Nan(each) if isinstance(each, float) and each != each else each for each in values]


def test_names_of_columns_keep_their_case() -> None:
    names = [col(name).to_variant().name() for name in ("Price", "n of", 'q"u.x', "select")]
    assert names == ["Price", "n of", 'q"u.x', "select"]


@pytest.mark.parametrize(
    "step",
    [
        lambda rows: rows.rename({"place": "at"}).select(zip="at['zip']"),
        lambda rows: rows.with_columns(x="place['zip']").select(zip="place['zip']"),
        lambda rows: rows.select("place").filter("place['zip'] > 0").select(zip="place['zip']"),
        lambda rows: rows.sql("select p['zip'] as zip from (select n, place as p from rows)"),
    ],
)
def test_a_field_of_a_struct_is_taken_after_any_step(step: Callable[[Dataset], Dataset]) -> None:
    rows = mrflight.read(pa.table({"n": [1, 2], "place": [{"zip": 7}, {"zip": 9}]}))
    assert step(rows).head().to_pydict() == {"zip": [7, 9]}


def of_polars(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(twice=pl.col("weight") * 2)


def of_pandas(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(thrice=rows["weight"] * 3)


def test_maps_of_all_kinds_follow_one_another(visits: Dataset) -> None:
    rows = (
        visits.select("url", "weight")
        .filter("weight > 0")
        .map(of_polars)
        .map(of_pandas)
        .with_columns(sum="twice + thrice")
        .sql("select url, sum from visits where url is not null")
        .sql("select sum, url from visits")
        .filter(col("sum") > lit(5))
        .map(lambda batch: batch.append_column("one", pa.array([1] * batch.num_rows)))
    )
    assert all_of(rows).to_pylist() == [{"sum": 20, "url": "b", "one": 1}]
    assert rows.schema.names == ["sum", "url", "one"]
    lines = [line.split(": ")[1].strip() for line in rows.explain().splitlines() if "map: " in line]
    assert lines[:4] == [
        'select("url", "weight").filter("weight > 0")',
        "of_polars",
        "of_pandas",
        'with_columns(sum="twice + thrice")',
    ]


def read_columns(rows: Dataset) -> list[str]:
    """Return the columns that the maps of a dataset read of their files."""
    (task,) = plan_here(rows._spec(TO_CALLER), Path.cwd()).plans[""].map_tasks
    assert task.reader.schema is not None
    return list(task.reader.schema.names)


@pytest.mark.parametrize(
    ("step", "columns"),
    [
        (lambda rows: rows.select("url"), ["url"]),
        (lambda rows: rows.select("url", "weight").filter("weight > 1"), ["url", "weight"]),
        (lambda rows: rows.filter(col("Price") > 1).select("url"), ["url", "Price"]),
        (lambda rows: rows.with_columns(x="weight + 1").drop("url").select("x"), ["weight"]),
        (lambda rows: rows.filter("weight > 1"), ROWS.column_names),
        (lambda rows: rows.sql("select url, day from visits").drop("url"), ["url", "day"]),
        (lambda rows: rows.filter("weight > 1").sql("select url from visits"), ["url", "weight"]),
        (
            lambda rows: rows.filter("weight > 1").group_by("url").agg(n="count(*)"),
            ["url", "weight"],
        ),
        (lambda rows: rows.filter("weight > 1").agg(n="count(*)"), ["weight"]),
        (lambda rows: rows.filter("weight > 1").map(of_polars).select("url"), ROWS.column_names),
        (lambda rows: rows.select("weight").map(of_polars).select("twice"), ["weight"]),
        (lambda rows: rows.select("url", n="weight").rename(n="m").select("m"), ["weight"]),
        (lambda rows: rows.drop(*ROWS.column_names[1:]), ["url"]),
        (lambda rows: rows.select("url", "day").select("day").agg(n="count(*)"), ["day"]),
    ],
)
def test_only_needed_columns_are_read(
    visits: Dataset, step: Callable[[Dataset], Dataset], columns: list[str]
) -> None:
    assert read_columns(step(visits)) == columns


OTHER_CONDITIONS = [
    "url is null",
    "url in ('a', 'z')",
    "weight not in (1, 2)",
    '"select"',
    "url like 'a%'",
    "weight between 2 and 5",
    '("q""u.x" is distinct from \'x\')',
    "day < date '2024-02-01'",
]


def conditions() -> st.SearchStrategy[str]:
    names = st.sampled_from(["weight", '"n of"', '"Price"', "1", "2.5", "-3"])
    compared = st.builds(
        "{} {} {}".format, names, st.sampled_from(["<", "<=", ">", ">=", "=", "<>"]), names
    )
    others = st.sampled_from(OTHER_CONDITIONS)
    return st.recursive(
        compared | others,
        lambda inner: (
            st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner)
            | st.builds("not ({})".format, inner)
        ),
        max_leaves=4,
    )


@settings(max_examples=some_of(25), derandomize=True, deadline=None)
@given(st.lists(conditions(), min_size=1, max_size=3), st.data())
def test_conditions_keep_the_rows_of_duckdb(
    folder: Path, given: list[str], data: st.DataObject
) -> None:
    """Several filters in a row, with and without a selection between them, are all applied."""
    path = str(folder / "visits.parquet")
    rows = mrflight.read(path).with_columns(row='"n of"')
    for condition in given:
        rows = rows.filter(condition)
        if data.draw(st.booleans()):
            rows = rows.with_columns(url="url")
    where = " and ".join(f"({condition})" for condition in given)
    wanted = duckdb.sql(f"select \"n of\" from '{path}' where {where}").fetchall()
    assert [(row,) for row in all_of(rows)["row"].to_pylist()] == wanted
