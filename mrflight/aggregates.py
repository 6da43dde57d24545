"""The aggregates of a job file: what they are called and what they take.

aggregate = { clicks = "sum(weight)", rows = "count(*)", last_seen = "max(at)" }
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, get_args

import pyarrow as pa
from pyarrow import types

from mrflight.errors import ColumnNotFoundError, JobFileError

AggregateFunction = Literal["sum", "min", "max", "count", "mean", "count_distinct", "first", "last"]
FUNCTIONS: tuple[str, ...] = get_args(AggregateFunction)

_CALL = re.compile(r"\s*([A-Za-z_]\w*)\s*\(\s*(.+?)\s*\)\s*")


class Aggregate(NamedTuple):
    """One output column: ``name = function(column)``; column None is ``count(*)``.

    Nulls are left out by every function but ``count(*)``; a group without any
    value has the count 0 and null for the rest. ``first`` and ``last`` go by
    the order of the input.
    """

    name: str
    function: AggregateFunction
    column: str | None


def parse_aggregate(name: str, text: str) -> Aggregate:
    """The aggregate that ``text`` calls; JobFileError says which there are."""
    match = _CALL.fullmatch(text)
    function, column = (match[1].lower(), match[2]) if match else ("", "")
    if function not in FUNCTIONS or (column == "*" and function != "count"):
        raise JobFileError(
            f"reduce.aggregate.{name}: {text!r} is not an aggregate; write 'function(column)' with "
            f"one of {', '.join(FUNCTIONS)}, or count(*)"
        )
    column = column[1:-1] if len(column) > 1 and column[0] == column[-1] == '"' else column
    return Aggregate(name, function, None if column == "*" else column)  # type: ignore[arg-type]


def check_aggregates(
    schema: pa.Schema, group_by: tuple[str, ...], aggregates: tuple[Aggregate, ...]
) -> None:
    """Raise ColumnNotFoundError or JobFileError where ``schema`` cannot be aggregated so."""
    for column in group_by:
        if column not in schema.names:
            raise ColumnNotFoundError.among(
                column, schema.names, "reduce.group_by: the mapped rows"
            )
    for aggregate in aggregates:
        if aggregate.column is not None:
            _check_column(schema, aggregate, aggregate.column)


def _check_column(schema: pa.Schema, aggregate: Aggregate, column: str) -> None:
    where = f"reduce.aggregate.{aggregate.name}"
    if column not in schema.names:
        raise ColumnNotFoundError.among(column, schema.names, f"{where}: a mapped row")
    kind = schema.field(column).type
    if aggregate.function in ("sum", "mean") and not _is_number(kind):
        raise JobFileError(
            f"{where}: {aggregate.function} of {column!r}, which is {kind}; make a number of it in "
            "the map, or take min, max, count, count_distinct, first or last"
        )
    if aggregate.function != "count" and types.is_nested(kind) and not types.is_dictionary(kind):
        raise JobFileError(
            f"{where}: {aggregate.function} of {column!r}, which is {kind}; only count takes "
            "nested columns"
        )


def _is_number(kind: pa.DataType) -> bool:
    if types.is_dictionary(kind):
        return _is_number(kind.value_type)
    return bool(
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal(kind)
        or types.is_boolean(kind)
        or types.is_duration(kind)
    )
