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
    ("function", "said"),
    [
        (lambda x: x, "the type of its argument 'x' is not known; give it hints"),
        (without_result, "its result has no type that is known; give it hints"),
        (of_values, "the type of its argument 'days' is not known"),
        (
            of_unknown,
            "its hints cannot be evaluated (NameError: name 'Nowhere' is not defined); import what",
        ),
        (lambda: 1, "its result has no type"),
        (mrflight.udf(lambda: 1, [], pa.int64()), "it takes no argument"),
        (max, "it has no signature"),
        (OfDataFusion, "f.state: the types of the values that it returns are not known"),
        (WithoutMerge, "an aggregate is a class with the methods update, merge, state, evaluate"),
        (int, "and this has no update"),
    ],
)
def test_what_has_no_types_is_refused(function: Callable[..., Any], said: str) -> None:
    with pytest.raises(UserFunctionError) as refused:
        types_of(function, "f")
    assert str(refused.value).startswith("f")
    assert said in str(refused.value)


def test_a_function_of_datafusion_is_refused() -> None:
    udf = pytest.importorskip("datafusion").udf
    made = udf(lambda x: x, [pa.int64()], pa.int64(), "immutable", "f")
    with pytest.raises(UserFunctionError, match="a function of DataFusion, which cannot be sent"):
        types_of(made, "f")


@pytest.mark.parametrize(
    ("declare", "given", "said"),
    [
        (mrflight.udf, (), r"udf: write the types of arguments and result"),
        (mrflight.udf, ([pa.int64()],), r"@udf\(\[pa.string\(\)\], pa.string\(\)\)"),
        (mrflight.udf, ("string", "string"), "udf: write the types"),
        (mrflight.udf, (doubled, [pa.int64()], [pa.int64(), pa.int64()]), "udf: write the types"),
        (mrflight.udaf, (doubled, [pa.int64()], pa.int64()), "udaf: .* result and state"),
    ],
)
def test_wrong_declarations(declare: Any, given: tuple[Any, ...], said: str) -> None:
    with pytest.raises(UserFunctionError, match=said):
        declare(*given)
    with pytest.raises(UserFunctionError, match="volatility='sometimes' is none of 'immutable'"):
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
