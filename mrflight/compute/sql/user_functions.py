"""The functions of the user that a query calls, and their calls by DataFusion.

A plan has only their names. What a name stands for is registered in each session that decodes the
plan: by a reference, as all functions of the user travel, and never by code in the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from mrflight.compute.sql.engine import new_session
from mrflight.compute.types import canonical_type
from mrflight.config.declared_functions import types_of
from mrflight.config.function_types import FunctionTypes
from mrflight.config.functions import FunctionRef, calling_user
from mrflight.errors import MrflightError, UserFunctionError
from mrflight.units import format_count

if TYPE_CHECKING:
    from datafusion import SessionContext


class UserFunction(msgspec.Struct, frozen=True):
    """A function that a query calls by a name."""

    name: str
    """Its name in the query, in lower case, since SQL does not tell cases of functions apart."""
    ref: FunctionRef
    types: FunctionTypes

    @classmethod
    def of(cls, name: str, ref: FunctionRef) -> UserFunction:
        """Load a function, and return it with its types. Raises UserFunctionError."""
        return cls(name.lower(), ref, types_of(ref.load(), f"{ref.key_path}: {ref}"))

    def __str__(self) -> str:
        return f"function {self.name} ({self.ref})"


def check_names(functions: Sequence[UserFunction]) -> None:
    """Raise UserFunctionError for a function with the name of one that DataFusion has."""
    session = new_session({})
    known = {*session.udfs(), *session.udafs(), *session.udwfs()} if functions else set()
    for each in functions:
        if each.name in known:
            raise UserFunctionError(
                f"{each.ref.key_path}: sql has a function {each.name} of its own; give this one "
                "another name"
            )


class FunctionCalls:
    """The calls of one session, and the error that ended the first one that failed.

    DataFusion passes on nothing but the text of an error.
    """

    def __init__(self, functions: Sequence[UserFunction]) -> None:
        self._functions = functions
        self.error: MrflightError | None = None

    def register(self, session: SessionContext) -> None:
        """Let a session call the functions. They are loaded when they are first called."""
        for each in self._functions:
            if each.types.state is None:
                _register_scalar(session, each, _ScalarCall(each, self).call)
            else:
                _register_aggregate(session, each, partial(_Accumulated, each, self))

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note the error that is raised inside."""
        try:
            yield
        except MrflightError as error:
            self.error = self.error or error
            raise

    def cause_of(self, error: Exception) -> MrflightError | None:
        """Return the error of a call that DataFusion's error names; None if it names none."""
        is_named = self.error is not None and type(self.error).__name__ in str(error)
        return self.error if is_named else None

    @contextmanager
    def raising_cause(self) -> Iterator[None]:
        """Raise the error of a call in place of what DataFusion makes of it."""
        try:
            yield
        except Exception as error:  # DataFusion raises a bare Exception for all errors
            if (cause := self.cause_of(error)) is not None:
                raise cause from error
            raise


def register_stand_ins(session: SessionContext, functions: Sequence[UserFunction]) -> None:
    """Let a session decode plans that have the functions, and run them for no rows.

    Nothing of the user is called: a stand-in returns nulls.
    """
    for each in functions:
        if each.types.state is None:
            _register_scalar(session, each, partial(_nulls, each.types.returns))
        else:
            _register_aggregate(session, each, partial(_NullAccumulator, each.types))


def _register_scalar(
    session: SessionContext, function: UserFunction, call: Callable[..., pa.Array]
) -> None:
    from datafusion import udf

    types = function.types
    session.register_udf(
        udf(call, list(types.arguments), types.returns, types.volatility, function.name)
    )


def _register_aggregate(
    session: SessionContext, function: UserFunction, accumulator: Callable[[], Any]
) -> None:
    from datafusion import AggregateUDF

    types = function.types
    session.register_udaf(
        AggregateUDF(
            function.name,
            accumulator,
            list(types.arguments),
            types.returns,
            list(types.state or ()),
            types.volatility,
        )
    )


class _ScalarCall:
    """Calls a function of arrays, and checks what it returns."""

    def __init__(self, function: UserFunction, calls: FunctionCalls) -> None:
        self._function = function
        self._calls = calls
        self._loaded: Callable[..., Any] | None = None

    def call(self, *arguments: pa.Array) -> pa.Array:
        with self._calls.noted():
            if self._loaded is None:
                self._loaded = self._function.ref.load()
            rows = len(arguments[0])
            with calling_user(f"the {self._function}, given {format_count(rows, 'row')},"):
                result = self._loaded(*arguments)
            return _checked_array(result, self._function, rows)


def _checked_array(result: Any, function: UserFunction, rows: int) -> pa.Array:
    """Return the result of a function as one array of the type that the query expects."""
    kind = function.types.returns
    if isinstance(result, pa.ChunkedArray):
        result = result.combine_chunks()
    if not isinstance(result, pa.Array):
        raise UserFunctionError(
            f"the {function} must return an array of pyarrow with a value for each row; it "
            f"returned {_name_of(result)}"
        )
    if len(result) != rows:
        raise UserFunctionError(
            f"the {function} must return a value for each row; it was given "
            f"{format_count(rows, 'row')} and returned {format_count(len(result), 'value')}"
        )
    if result.type == kind:
        return result
    if pa.types.is_null(result.type) or canonical_type(result.type) == canonical_type(kind):
        return result.cast(kind)
    raise UserFunctionError(
        f"the {function} returned values of type {result.type}, and not {kind} as declared; cast "
        "them, or declare the type that they have"
    )


class _Accumulated:
    """An accumulator of the user, as DataFusion calls it: for one group, or a part of one."""

    def __init__(self, function: UserFunction, calls: FunctionCalls) -> None:
        self._function = function
        self._calls = calls
        with calls.noted():
            create = function.ref.load()
            with calling_user(f"the {function}"):
                self._own = create()

    def update(self, *arrays: pa.Array) -> None:
        with self._calls.noted():
            if len(arrays) != len(self._function.types.arguments):
                raise UserFunctionError(
                    f"the {self._function} is called with `order by`: the states of several tasks "
                    "are merged in any order; sort what it needs in evaluate"
                )
            self._call("update", *arrays)

    def merge(self, states: list[pa.Array]) -> None:
        with self._calls.noted():
            self._call("merge", states)

    def state(self) -> list[pa.Scalar]:
        with self._calls.noted():
            found, kinds = self._call("state"), self._function.types.state or ()
            if not isinstance(found, list | tuple) or len(found) != len(kinds):
                raise UserFunctionError(
                    f"the {self._function}: state must return {len(kinds)} values in a list or "
                    f"tuple; it returned {_name_of(found)}"
                )
            return [
                self._scalar("state", value, kind) for value, kind in zip(found, kinds, strict=True)
            ]

    def evaluate(self) -> pa.Scalar:
        with self._calls.noted():
            return self._scalar("evaluate", self._call("evaluate"), self._function.types.returns)

    def _call(self, method: str, *arguments: object) -> Any:
        with calling_user(f"{method} of the {self._function}"):
            return getattr(self._own, method)(*arguments)

    def _scalar(self, method: str, value: Any, kind: pa.DataType) -> pa.Scalar:
        plain = value.as_py() if isinstance(value, pa.Scalar) else value
        if plain is None and _has_no_null(kind):
            raise UserFunctionError(
                f"the {self._function}: {method} returned a null of type {kind}, which DataFusion "
                "does not take from Python; return an empty list"
            )
        try:
            return pa.scalar(plain, kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise UserFunctionError(
                f"the {self._function}: {method} returned {value!r:.60}, which is no {kind} as "
                f"declared: {error}"
            ) from error


def _nulls(kind: pa.DataType, first: pa.Array, *_: pa.Array) -> pa.Array:
    return pa.nulls(len(first), kind)


class _NullAccumulator:
    """An accumulator that stands for another one, and has no values."""

    def __init__(self, types: FunctionTypes) -> None:
        self._types = types

    def update(self, *arrays: pa.Array) -> None:
        """Do nothing."""

    def merge(self, states: list[pa.Array]) -> None:
        """Do nothing."""

    def state(self) -> list[pa.Scalar]:
        return [_no_value(kind) for kind in self._types.state or ()]

    def evaluate(self) -> pa.Scalar:
        return _no_value(self._types.returns)


def _no_value(kind: pa.DataType) -> pa.Scalar:
    """Return a null, or else an empty list."""
    if not _has_no_null(kind):
        return pa.scalar(None, kind)
    size = kind.list_size if pa.types.is_fixed_size_list(kind) else 0
    return pa.scalar([None] * size, kind)


def _has_no_null(kind: pa.DataType) -> bool:
    """Return whether DataFusion fails for a null of a type that an accumulator returns."""
    return bool(pa.types.is_nested(kind) and not pa.types.is_struct(kind))


def _name_of(value: object) -> str:
    if value is None:
        return "None; does it end with return?"
    size = f" of {len(value)}" if isinstance(value, list | tuple) else ""
    return f"a value of type {type(value).__name__}{size}"
