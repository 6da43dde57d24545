"""Rows go to functions as their hints ask, and come back with the types that they had."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import find

from mrflight.config.frames import as_hinted, hinted_type, returned_rows, to_batches
from mrflight.config.pickled_functions import load_pickled, pickle_function
from mrflight.config.pickled_functions import split_pickled as split
from mrflight.errors import UserFunctionError
from tests.support.queries.column_kinds import KINDS, Kind
from tests.support.suite.cases import cases
from tests.support.suite.messages import refused


def of_polars(rows: pl.DataFrame) -> pl.DataFrame:
    return rows


def of_pandas(rows: pd.DataFrame, factor: int = 1) -> pd.DataFrame:
    return rows


def of_table(rows: pa.Table) -> pa.Table:
    return rows


def of_batch(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows


def of_frames_without_imports(rows: P.DataFrame) -> None:  # type: ignore[name-defined]  # noqa: F821
    """As cloudpickle leaves a function whose hint names a module under another name."""


class Weigh:
    """A callable with state."""

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows


def evaluated(rows: Any) -> Any:
    return rows


evaluated.__annotations__["rows"] = pd.DataFrame


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (of_polars, pl.DataFrame),
        (of_pandas, pd.DataFrame),
        (partial(of_pandas, factor=2), pd.DataFrame),
        (of_table, pa.Table),
        (of_batch, pa.RecordBatch),
        (Weigh(), pl.DataFrame),
        (Weigh().__call__, pl.DataFrame),
        (evaluated, pd.DataFrame),
        (lambda rows: rows, pa.RecordBatch),
        (dict, pa.RecordBatch),
    ],
)
def test_hints_decide_the_type(function: Callable[..., Any], kind: type) -> None:
    batch = pa.record_batch({"n": [1, None]})
    assert type(as_hinted(batch, hinted_type(function, "f"))) is kind


def test_a_pickled_function_keeps_its_hint() -> None:
    parts = split(pickle_function(of_polars, "map"))
    assert parts is not None
    assert hinted_type(load_pickled(parts[1]), "f") == "polars"


def test_a_hint_that_is_not_clear() -> None:
    with refused(UserFunctionError):
        hinted_type(of_frames_without_imports, "the map f")


@pytest.mark.slow_but("of_table")
@pytest.mark.parametrize("function", [of_polars, of_pandas, of_table, of_batch])
def test_types_do_not_depend_on_the_rows(function: Callable[..., Any]) -> None:
    """Polars has fewer types than Arrow, and none for decimals of 256 bits."""
    with cases() as case:
        for kind in KINDS:
            if function is not of_polars or kind.type != pa.decimal256(76, 2):
                with case(kind.type):
                    assert len(_types_of_rows(function, kind)) == 1


def _types_of_rows(function: Callable[..., Any], kind: Kind) -> set[pa.DataType]:
    """Return the types that a column has in frames of two rows, of one null and of none."""
    wanted, types = hinted_type(function, "f"), set()
    full = kind.array([find(kind.values, lambda value: True), None])
    for column in (full, full[1:], full[:0]):
        given = pa.record_batch({"v": column})
        for rows in (given, pa.Table.from_batches([given])):
            returned = returned_rows(as_hinted(rows, wanted), given.schema)
            assert returned is not None
            [batch] = to_batches(returned)
            types.add(batch.schema.field("v").type)
            if wanted != "polars":
                assert batch["v"].equals(column)
            else:
                assert batch["v"].is_null().equals(column.is_null())
    return types


def test_columns_of_a_frame_that_are_null_keep_the_type_that_they_were_given_with() -> None:
    given = pa.schema({"n": pa.int64(), "s": pa.string()})
    for frame in (
        pd.DataFrame({"s": [None, None], "n": [None, None], "new": [1, 2]}),
        pl.DataFrame({"s": [None, None], "n": [None, None], "new": [1, 2]}),
    ):
        rows = returned_rows(frame, given)
        assert rows is not None
        assert rows.schema == pa.schema({"s": pa.string(), "n": pa.int64(), "new": pa.int64()})
        assert rows.to_pylist() == [{"s": None, "n": None, "new": new} for new in (1, 2)]


@pytest.mark.parametrize(
    ("frame", "columns"),
    [
        (pd.DataFrame({"v": [1, 2, 3]}).loc[[0, 2]], ["v"]),
        (pd.DataFrame({"v": [1]}, index=pd.Index([5], name="k")), ["k", "v"]),
        (pd.DataFrame({"v": [1]}).set_index(pd.MultiIndex.from_tuples([(1, 2)], names=["a", "b"])),
         ["a", "b", "v"]),
    ],
)  # fmt: skip
def test_an_index_with_a_name_is_a_column(frame: pd.DataFrame, columns: list[str]) -> None:
    rows = returned_rows(frame, pa.schema([]))
    assert rows is not None
    assert rows.schema.names == columns
    assert rows.schema.metadata is None


def test_what_is_no_table() -> None:
    for result in (None, [1], {"a": [1]}, pd.Series([1])):
        assert returned_rows(result, pa.schema([])) is None
