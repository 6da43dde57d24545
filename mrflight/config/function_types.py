"""The types of a function that queries call, as its hints tell them."""

from __future__ import annotations

import datetime
import inspect
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec
import pyarrow as pa

from mrflight.errors import UserFunctionError

Volatility = Literal["immutable", "stable", "volatile"]
"""What DataFusion takes for granted of a function: that equal arguments always give equal results,
that they do so within one query, or nothing."""

METHODS = ("update", "merge", "state", "evaluate")
"""The methods of an accumulator."""

_OF_PYTHON: dict[object, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    datetime.date: pa.date32(),
    datetime.datetime: pa.timestamp("us"),
}
"""The types of single values, which an accumulator makes."""

_KINDS = {
    "Boolean": pa.bool_(),
    "Float": pa.float32(),
    "Double": pa.float64(),
    "String": pa.string(),
    "LargeString": pa.large_string(),
    "Binary": pa.binary(),
    "LargeBinary": pa.large_binary(),
    "Date32": pa.date32(),
    "Date64": pa.date64(),
    **{f"Int{bits}": pa.type_for_alias(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"UInt{bits}": pa.type_for_alias(f"uint{bits}") for bits in (8, 16, 32, 64)},
}
_OF_ARROW: dict[object, pa.DataType] = {
    getattr(pa, f"{name}{suffix}"): kind
    for name, kind in _KINDS.items()
    for suffix in ("Array", "Scalar")
}
"""The classes of pyarrow whose values have one type, such as ``pyarrow.Int64Array``."""

_HINTS = (
    "give it hints of pyarrow's arrays, such as `def clean(url: pa.StringArray) -> "
    "pa.StringArray`, or `Annotated[pa.Array, pa.timestamp('us')]`, or declare its types by "
    "@mrflight.udf"
)
_HINTS_OF_AGGREGATES = (
    "give its methods hints, such as `update(self, seconds: pa.DoubleArray)`, "
    "`state(self) -> tuple[float, int]` and `evaluate(self) -> float`, or declare its types by "
    "@mrflight.udaf"
)


class FunctionTypes(msgspec.Struct, frozen=True):
    """What a query has to know of a function."""

    arguments: tuple[pa.DataType, ...]
    returns: pa.DataType
    state: tuple[pa.DataType, ...] | None = None
    """The values of an accumulator's state; None for a function of arrays."""
    volatility: Volatility = "immutable"


def hinted_types(function: Callable[..., Any], what: str) -> FunctionTypes:
    """Return the types that the hints of a function of arrays, or of an accumulator, tell.

    Raises UserFunctionError, whose message begins with ``what``.
    """
    if inspect.isclass(function):
        return _of_accumulator(function, what)
    arguments, returns = _of_call(function, what, _HINTS)
    if returns is None:
        raise UserFunctionError(f"{what}: its result has no type that is known; {_HINTS}")
    return FunctionTypes(arguments, returns)


def check_methods(accumulator: object, what: str) -> None:
    """Raise UserFunctionError unless it has the methods of an accumulator."""
    missing = [name for name in METHODS if not callable(getattr(accumulator, name, None))]
    if missing:
        raise UserFunctionError(
            f"{what}: an aggregate is a class with the methods {', '.join(METHODS)}, and this has "
            f"no {missing[0]}"
        )


def _of_accumulator(accumulator: type, what: str) -> FunctionTypes:
    check_methods(accumulator, what)
    named: Any = accumulator
    arguments, _ = _of_call(named.update, f"{what}.update", _HINTS_OF_AGGREGATES, skipped=1)
    returns = _known(_hints_of(named.evaluate, f"{what}.evaluate").get("return"))
    if returns is None:
        raise UserFunctionError(
            f"{what}.evaluate: its result has no type that is known; {_HINTS_OF_AGGREGATES}"
        )
    hint = _hints_of(named.state, f"{what}.state").get("return")
    values = typing.get_args(hint) if typing.get_origin(hint) is tuple else ()
    state = tuple(_known(each) for each in values)
    if not state or None in state:
        raise UserFunctionError(
            f"{what}.state: the types of the values that it returns are not known; "
            f"{_HINTS_OF_AGGREGATES}"
        )
    return FunctionTypes(arguments, returns, typing.cast(tuple[pa.DataType, ...], state))


def _of_call(
    function: Callable[..., Any], what: str, advice: str, skipped: int = 0
) -> tuple[tuple[pa.DataType, ...], pa.DataType | None]:
    """Return the types of the arguments, without the first ones, and that of the result."""
    try:
        parameters = list(inspect.signature(function).parameters.values())[skipped:]
    except (TypeError, ValueError) as error:  # functions in C have none
        raise UserFunctionError(f"{what}: it has no signature; {advice}") from error
    hints = _hints_of(function, what)
    arguments = []
    for parameter in parameters:
        if (kind := _known(hints.get(parameter.name), of_arrays=True)) is None:
            raise UserFunctionError(
                f"{what}: the type of its argument {parameter.name!r} is not known; {advice}"
            )
        arguments.append(kind)
    return tuple(arguments), _known(hints.get("return"), of_arrays=True)


def _hints_of(function: Callable[..., Any], what: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception as error:  # a hint is any expression of the user
        raise UserFunctionError(
            f"{what}: its hints cannot be evaluated ({type(error).__name__}: {error}); import what "
            "they name, or declare the types with mrflight.udf or mrflight.udaf"
        ) from error


def _known(hint: Any, *, of_arrays: bool = False) -> pa.DataType | None:
    """Return the type that a hint names; None for hints that name none.

    ``of_arrays``: it is that of a whole array, which a type of Python does not describe.
    """
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        others = [each for each in typing.get_args(hint) if each is not type(None)]
        return _known(others[0], of_arrays=of_arrays) if len(others) == 1 else None
    if typing.get_origin(hint) is typing.Annotated:
        return _only(each for each in hint.__metadata__ if isinstance(each, pa.DataType))
    if not isinstance(hint, type):
        return None
    return _OF_ARROW.get(hint) or (None if of_arrays else _OF_PYTHON.get(hint))


def _only(found: Iterable[pa.DataType]) -> pa.DataType | None:
    kinds = list(found)
    return kinds[0] if len(kinds) == 1 else None
