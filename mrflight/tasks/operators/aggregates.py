"""The aggregates of a job file: their names and the types that they take.

aggregate = { clicks = "sum(weight)", rows = "count(*)", last_seen = "max(at)" }
"""

from __future__ import annotations

import math
import re
from typing import Literal, NamedTuple, get_args

import pyarrow as pa
from pyarrow import types

from mrflight.compute import kernel
from mrflight.compute.key_types import has_canonical_bytes
from mrflight.compute.types import canonical_type
from mrflight.errors import ColumnNotFoundError, JobFileError, KeyTypeError, SchemaMismatchError

AggregateFunction = Literal[
    "sum",
    "min",
    "max",
    "count",
    "mean",
    "count_distinct",
    "first",
    "last",
    "var",
    "var_pop",
    "stddev",
    "stddev_pop",
    "median",
    "quantile",
    "approx_median",
    "approx_quantile",
    "bool_and",
    "bool_or",
]
FUNCTIONS: tuple[str, ...] = get_args(AggregateFunction)

SYNONYMS = {
    "avg": "mean",
    "any_value": "first",
    "std": "stddev",
    "stddev_samp": "stddev",
    "variance": "var",
    "var_samp": "var",
    "quantile_cont": "quantile",
}
"""Other names that SQL, Polars or pandas have for these functions."""

VARIANCES = ("var", "var_pop", "stddev", "stddev_pop")
QUANTILES = ("median", "quantile")
APPROXIMATIONS = ("approx_median", "approx_quantile")
_WITH_FRACTION = ("quantile", "approx_quantile")

MAPPED_ROW = "a mapped row"

_CALL = re.compile(r"\s*([A-Za-z_]\w*)\s*\(\s*(.+?)\s*\)\s*", re.DOTALL)
_DISTINCT = re.compile(r"distinct\s+(.+)", re.DOTALL | re.IGNORECASE)


class Aggregate(NamedTuple):
    """One output column: ``name = function(column)``; column None is ``count(*)``.

    Every function but ``count(*)`` ignores nulls. For a group without values a count is 0, and the
    other functions return null. ``first`` and ``last`` use the order of the input.
    """

    name: str
    function: AggregateFunction
    column: str | None
    fraction: float = 0.5
    """Which quantile; other functions do not use it."""

    @property
    def is_count(self) -> bool:
        """True if the result for no values is 0 rather than null."""
        return self.function in ("count", "count_distinct")

    @property
    def needs_all_rows(self) -> bool:
        """True if results of parts of a group cannot be combined, whatever the column."""
        return self.function == "count_distinct" or self.function in QUANTILES


def parse_aggregate(name: str, text: str) -> Aggregate:
    """Parse an aggregate such as ``sum(weight)``. The JobFileError lists the functions."""
    match = _CALL.fullmatch(text)
    function, column = (match[1].lower(), match[2]) if match else ("", "")
    function = SYNONYMS.get(function, function)
    if function == "count" and (distinct := _DISTINCT.fullmatch(column)):
        function, column = "count_distinct", distinct[1]
    is_star = column == "*"
    if function not in FUNCTIONS or (is_star and function != "count"):
        raise JobFileError(
            f"reduce.aggregate.{name}: {text!r} is not an aggregate; write 'function(column)' with "
            f"one of {', '.join((*FUNCTIONS, *SYNONYMS))}, or count(*)"
        )
    fraction = 0.5
    if function in _WITH_FRACTION:
        column, fraction = _split_fraction(name, text, column)
    column = column[1:-1] if len(column) > 1 and column[0] == column[-1] == '"' else column
    return Aggregate(name, function, None if is_star else column, fraction)  # type: ignore[arg-type]


def _split_fraction(name: str, text: str, arguments: str) -> tuple[str, float]:
    """Return the column and the fraction of a quantile."""
    column, comma, last = arguments.rpartition(",")
    try:
        fraction = float(last)
    except ValueError:
        fraction = math.nan
    if not comma or not column.strip() or not 0 <= fraction <= 1:
        raise JobFileError(
            f"reduce.aggregate.{name}: {text!r} needs a column and a fraction from 0 to 1: "
            "'quantile(column, 0.9)'"
        )
    return column.strip(), fraction


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
    if reason := _why_refused(aggregate.function, kind):
        raise JobFileError(f"{what}{reason}")
    if aggregate.function != "count" and types.is_nested(kind):
        raise JobFileError(f"{what}; only count takes nested columns")


def _why_refused(function: AggregateFunction, kind: pa.DataType) -> str:
    """Return why a function does not take a type that is not nested; empty if it does."""
    if function in ("sum", "mean") and not (_is_number(kind) or types.is_duration(kind)):
        others = "min, max, count, count_distinct, first or last"
        return f"; convert it to a number in the map, or use {others}"
    if function in VARIANCES and not _is_number(kind):
        return "; convert it to a number in the map"
    if function in (*QUANTILES, *APPROXIMATIONS) and not (_is_number(kind) or _is_time(kind)):
        return "; convert it to a number or a time in the map"
    if function in ("bool_and", "bool_or") and not types.is_boolean(kind):
        return "; compare it with something in the map, for example in sql: weight > 0 as heavy"
    if function in ("min", "max") and types.is_interval(kind):
        return ", has no order; use count, first or last"
    is_compared = function in ("min", "max", "count_distinct")
    if is_compared and isinstance(kind, pa.BaseExtensionType):
        plain = canonical_type(kind.storage_type)
        return (
            f", and Arrow does not compare such values; convert it to {plain} in the map, or use "
            "count, first or last"
        )
    return ""


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal(kind)
        or types.is_boolean(kind)
    )


def _is_time(kind: pa.DataType) -> bool:
    return bool(types.is_temporal(kind) and not types.is_interval(kind))
