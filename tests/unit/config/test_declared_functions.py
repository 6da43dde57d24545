"""What a query has to know of a function: from its hints, or declared."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Annotated, Any

import cloudpickle
import pyarrow as pa
import pytest

import mrflight
from mrflight.config.declared_functions import types_of
from mrflight.config.function_types import FunctionTypes
from mrflight.config.pickled_functions import name_of
from mrflight.errors import UserFunctionError
from tests.support.queries import functions as query_functions
from tests.support.suite.messages import refused

TIME = pa.timestamp("us")


def at_noon(days: pa.Date32Array, to: Annotated[pa.Array, TIME]) -> pa.BooleanArray | None: ...


def without_result(days: pa.Date32Array): ...  # type: ignore[no-untyped-def]


def of_values(days: int) -> pa.Int64Array: ...


def of_unknown(days: Nowhere) -> pa.Int64Array: ...  # type: ignore[name-defined]  # noqa: F821


class OfDataFusion(query_functions.Spread):
    def state(self) -> list[pa.Scalar]: ...  # type: ignore[override]


class WithoutMerge(query_functions.Spread):
    merge = None  # type: ignore[assignment]


def doubled(column: pa.Array) -> pa.Array:
    return column


@pytest.mark.parametrize(
    ("function", "types"),
    [
        (at_noon, FunctionTypes((pa.date32(), TIME), pa.bool_())),
        (query_functions.Spread, FunctionTypes((pa.int64(),), pa.int64(), (pa.int64(),) * 2)),
        (
            query_functions.Kinds,
            FunctionTypes((pa.string(),), pa.int64(), (pa.list_(pa.string()),)),
        ),
        (
            mrflight.udf(lambda x: x, pa.int8(), pa.int16(), volatility="stable"),
            FunctionTypes((pa.int8(),), pa.int16(), None, "stable"),
        ),
        (
            query_functions.Weighted,
            FunctionTypes((pa.int64(), pa.float64()), pa.float64(), (pa.float64(),)),
        ),
    ],
)
def test_types_are_hinted_or_declared(function: Callable[..., Any], types: FunctionTypes) -> None:
    assert types_of(function, "f") == types


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x,
        without_result,
        of_values,
        of_unknown,
        lambda: 1,
        mrflight.udf(lambda: 1, [], pa.int64()),
        max,
        OfDataFusion,
        WithoutMerge,
        int,
    ],
)
def test_what_has_no_types_is_refused(function: Callable[..., Any]) -> None:
    with refused(UserFunctionError) as caught:
        types_of(function, "f")
    assert str(caught.value).startswith("f")


def test_a_function_of_datafusion_is_refused() -> None:
    udf = pytest.importorskip("datafusion").udf
    made = udf(lambda x: x, [pa.int64()], pa.int64(), "immutable", "f")
    with refused(UserFunctionError):
        types_of(made, "f")


@pytest.mark.parametrize(
    ("declare", "given"),
    [
        (mrflight.udf, ()),
        (mrflight.udf, ([pa.int64()],)),
        (mrflight.udf, ("string", "string")),
        (mrflight.udf, (doubled, [pa.int64()], [pa.int64(), pa.int64()])),
        (mrflight.udaf, (doubled, [pa.int64()], pa.int64())),
    ],
)
def test_wrong_declarations(declare: Any, given: tuple[Any, ...]) -> None:
    with refused(UserFunctionError):
        declare(*given)
    with refused(UserFunctionError):
        mrflight.udf(doubled, pa.int64(), pa.int64(), volatility="sometimes")  # type: ignore


def test_a_declared_function_is_called_named_and_sent_as_before() -> None:
    declared = mrflight.udf(doubled, pa.int64(), pa.int64())
    column = pa.array([1, 2])
    assert declared(column) is column
    assert name_of(declared) == "doubled"
    sent = pickle.loads(cloudpickle.dumps(declared))
    assert sent(column) is column
    assert sent.types == declared.types
    # One that a module has is imported from there.
    assert pickle.loads(cloudpickle.dumps(query_functions.Weighted)) is query_functions.Weighted
