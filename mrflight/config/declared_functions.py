"""Declares the types of functions that queries call: ``mrflight.udf`` and ``mrflight.udaf``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial, update_wrapper
from typing import Any, TypeAlias, get_args, overload

import pyarrow as pa

from mrflight.config.function_types import (
    FunctionTypes,
    Volatility,
    check_methods,
    hinted_types,
)
from mrflight.errors import UserFunctionError

_Function = Callable[..., Any]
_Types: TypeAlias = "Sequence[pa.DataType] | pa.DataType"


class DeclaredFunction:
    """A function with the types that a query has to know of it. It can be called as before."""

    __wrapped__: _Function

    def __init__(self, function: _Function, types: FunctionTypes) -> None:
        update_wrapper(self, function)
        self.types = types

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)

    def __reduce__(self) -> Any:
        name = getattr(self, "__qualname__", "")
        module = sys.modules.get(self.__module__)
        if self.__module__ != "__main__" and getattr(module, name, None) is self:
            return name  # workers import it, as they do a function
        return DeclaredFunction, (self.__wrapped__, self.types)


@overload
def udf(
    function: _Function,
    arguments: _Types,
    returns: pa.DataType,
    /,
    volatility: Volatility = "immutable",
) -> DeclaredFunction: ...


@overload
def udf(
    arguments: _Types, returns: pa.DataType, /, volatility: Volatility = "immutable"
) -> Callable[[_Function], DeclaredFunction]: ...


def udf(*given: Any, volatility: Volatility = "immutable") -> Any:
    """Declare the types of a function of arrays: ``@udf([pa.string()], pa.string())``.

    Or ``udf(function, [pa.string()], pa.string())``. A query calls the function with an array for
    each of the ``arguments``, and gets an array of as many values. Its ``volatility`` is that of
    DataFusion: ``immutable``, so that equal arguments always have equal results and a call with
    constants may happen once, ``stable``, or ``volatile``. Raises UserFunctionError.
    """
    return _declared(given, _DECLARED_SCALAR, volatility)


@overload
def udaf(
    accumulator: _Function,
    arguments: _Types,
    returns: pa.DataType,
    state: _Types,
    /,
    volatility: Volatility = "immutable",
) -> DeclaredFunction: ...


@overload
def udaf(
    arguments: _Types,
    returns: pa.DataType,
    state: _Types,
    /,
    volatility: Volatility = "immutable",
) -> Callable[[_Function], DeclaredFunction]: ...


def udaf(*given: Any, volatility: Volatility = "immutable") -> Any:
    """Declare the types of an aggregate: ``@udaf([pa.float64()], pa.float64(), [pa.float64()])``.

    The last types are those of its state. What is declared is a class of accumulators, or a
    function that returns one. An accumulator has the methods of DataFusion's: ``update(*arrays)``
    adds rows, ``state()`` returns values that can be sent, ``merge(arrays)`` adds the states of
    other accumulators, an array for each value of a state, and ``evaluate()`` returns the result.
    Raises UserFunctionError.
    """
    return _declared(given, _DECLARED_AGGREGATE, volatility)


def types_of(function: _Function, what: str) -> FunctionTypes:
    """Return the types of a function, as declared or hinted.

    Raises UserFunctionError, whose message begins with ``what``.
    """
    types = _declared_or_hinted(function, what)
    if not types.arguments:
        raise UserFunctionError(
            f"{what}: it takes no argument, and so cannot know how many rows there are; give it "
            "a column"
        )
    return types


def _declared_or_hinted(function: _Function, what: str) -> FunctionTypes:
    if isinstance(function, DeclaredFunction):
        if isinstance(function.__wrapped__, type):
            check_methods(function.__wrapped__, what)
        return function.types
    if type(function).__module__.partition(".")[0] == "datafusion":
        raise UserFunctionError(
            f"{what}: this is a function of DataFusion, which cannot be sent to workers; give the "
            "Python function itself, with mrflight.udf or mrflight.udaf in place of DataFusion's"
        )
    return hinted_types(function, what)


_DECLARED_SCALAR = ("udf", "[pa.string()], pa.string()")
_DECLARED_AGGREGATE = ("udaf", "[pa.float64()], pa.float64(), [pa.float64()]")
"""What declares a function, and an example of its types: of arguments, result and state."""


def _declared(given: Sequence[Any], example: tuple[str, str], volatility: Volatility) -> Any:
    """Return a declared function if one is given before its types; otherwise a decorator."""
    name, shown = example
    is_complete = bool(given) and callable(given[0])
    lists = [_list(each) for each in given[is_complete:]]
    count = shown.count(", ") + 1
    parts = "arguments, result and state" if count > 2 else "arguments and result"
    if len(lists) != count or None in lists or len(lists[1] or ()) != 1:
        raise UserFunctionError(
            f"{name}: write the types of {parts} as types of pyarrow: "
            f"@{name}({shown}) above a function, or {name}(function, {shown})"
        )
    if volatility not in get_args(Volatility):
        known = ", ".join(map(repr, get_args(Volatility)))
        raise UserFunctionError(f"{name}: volatility={volatility!r} is none of {known}")
    arguments, (returns,), *state = (tuple(each or ()) for each in lists)
    types = FunctionTypes(arguments, returns, state[0] if state else None, volatility)
    return DeclaredFunction(given[0], types) if is_complete else partial(_of_types, types)


def _of_types(types: FunctionTypes, function: _Function) -> DeclaredFunction:
    return DeclaredFunction(function, types)


def _list(given: object) -> list[pa.DataType] | None:
    """Return types as a list; None if they are something else."""
    if isinstance(given, pa.DataType):
        return [given]
    if not isinstance(given, Sequence) or isinstance(given, str):
        return None
    return list(given) if all(isinstance(each, pa.DataType) for each in given) else None
