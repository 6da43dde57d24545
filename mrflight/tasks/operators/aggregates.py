"""The aggregates of a job file: their names and the types that they take.

aggregate = { clicks = "sum(weight)", rows = "count(*)", last_seen = "max(at)" }
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, get_args

import pyarrow as pa
from pyarrow import types

from mrflight.compute import kernel
from mrflight.compute.key_types import has_canonical_bytes
from mrflight.compute.types import canonical_type
from mrflight.errors import ColumnNotFoundError, JobFileError, KeyTypeError, SchemaMismatchError

AggregateFunction = Literal["sum", "min", "max", "count", "mean", "count_distinct", "first", "last"]
FUNCTIONS: tuple[str, ...] = get_args(AggregateFunction)

SYNONYMS = {"avg": "mean", "any_value": "first"}
"""Other names that SQL has for these functions."""

MAPPED_ROW = "a mapped row"

_CALL = re.compile(r"\s*([A-Za-z_]\w*)\s*\(\s*(.+?)\s*\)\s*")


class Aggregate(NamedTuple):
    """One output column: ``name = function(column)``; column None is ``count(*)``.

    Every function but ``count(*)`` ignores nulls. For a group without values a count is 0, and the
    other functions return null. ``first`` and ``last`` use the order of the input.
    """

    name: str
    function: AggregateFunction
    column: str | None

    @property
    def is_count(self) -> bool:
        """True if the result for no values is 0 rather than null."""
        return self.function in ("count", "count_distinct")


def parse_aggregate(name: str, text: str) -> Aggregate:
    """Parse an aggregate such as ``sum(weight)``. The JobFileError lists the functions."""
    match = _CALL.fullmatch(text)
    function, column = (match[1].lower(), match[2]) if match else ("", "")
    function = SYNONYMS.get(function, function)
    is_star = column == "*"
    if function not in FUNCTIONS or (is_star and function != "count"):
        raise JobFileError(
            f"reduce.aggregate.{name}: {text!r} is not an aggregate; write 'function(column)' with "
            f"one of {', '.join((*FUNCTIONS, *SYNONYMS))}, or count(*)"
        )
    column = column[1:-1] if len(column) > 1 and column[0] == column[-1] == '"' else column
    return Aggregate(name, function, None if is_star else column)  # type: ignore[arg-type]


def check_aggregates(
    schema: pa.Schema,
    group_by: tuple[str, ...],
    aggregates: tuple[Aggregate, ...],
    rows: str = MAPPED_ROW,
) -> None:
    """Raise if rows of ``schema``, in their canonical layout, cannot be aggregated like this.

    Messages call the rows ``rows``. Raises ColumnNotFoundError for a missing column, KeyTypeError
    for a group that cannot be hashed, and JobFileError for an aggregate that does not accept the
    type of its column.
    """
    for column in group_by:
        _type_of(schema, column, f"reduce.group_by: {rows}")
    if group_by:
        kernel.check_key_types(schema, group_by)
    if not group_by and aggregates and all(each.column is None for each in aggregates):
        for column in schema.names[:1]:  # it counts the rows
            _type_of(schema, column, f"reduce.aggregate: {rows}")
    for aggregate in aggregates:
        if aggregate.column is not None:
            _check_column(schema, aggregate, aggregate.column, rows)


def check_distinct(schema: pa.Schema, rows: str = MAPPED_ROW) -> None:
    """Raise if rows of ``schema``, in their canonical layout, cannot be compared in all columns.

    Raises SchemaMismatchError for two columns with the same name, and KeyTypeError for a column
    whose type cannot be hashed.
    """
    for field in schema:
        _type_of(schema, field.name, f"reduce.distinct: {rows}")
        if not has_canonical_bytes(field.type):
            raise KeyTypeError(
                f"reduce.distinct: column {field.name!r} is {field.type}, and such values cannot "
                "be compared; leave it out or convert it to plain columns in the map, or use "
                "reduce.keep with the columns that identify a row"
            )


def _type_of(schema: pa.Schema, column: str, where: str) -> pa.DataType:
    found = schema.get_all_field_indices(column)
    if not found:
        raise ColumnNotFoundError.among(column, schema.names, where)
    if len(found) > 1:
        raise SchemaMismatchError(
            f"{where} has {len(found)} columns {column!r}; rename one in the map"
        )
    return schema.field(found[0]).type


def _check_column(schema: pa.Schema, aggregate: Aggregate, column: str, rows: str) -> None:
    where = f"reduce.aggregate.{aggregate.name}"
    kind = _type_of(schema, column, f"{where}: {rows}")
    what = f"{where}: {aggregate.function} of {column!r}, which is {kind}"
    if aggregate.function in ("sum", "mean") and not _is_number(kind):
        raise JobFileError(
            f"{what}; convert it to a number in the map, or use min, max, count, count_distinct, "
            "first or last"
        )
    if aggregate.function in ("min", "max") and types.is_interval(kind):
        raise JobFileError(f"{what}, has no order; use count, first or last")
    is_compared = aggregate.function in ("min", "max", "count_distinct")
    if is_compared and isinstance(kind, pa.BaseExtensionType):
        raise JobFileError(
            f"{what}, and Arrow does not compare such values; convert it to "
            f"{canonical_type(kind.storage_type)} in the map, or use count, first or last"
        )
    if aggregate.function != "count" and types.is_nested(kind):
        raise JobFileError(f"{what}; only count takes nested columns")


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal(kind)
        or types.is_boolean(kind)
        or types.is_duration(kind)
    )
