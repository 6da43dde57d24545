"""Checks aggregates: whether their columns exist and have types that they take."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types

from mrflight.compute import kernel
from mrflight.compute.key_types import has_canonical_bytes
from mrflight.compute.types import canonical_type
from mrflight.config.aggregates import (
    APPROXIMATIONS,
    QUANTILES,
    VARIANCES,
    Aggregate,
    AggregateFunction,
)
from mrflight.errors import ColumnNotFoundError, JobFileError, KeyTypeError, SchemaMismatchError

MAPPED_ROW = "a mapped row"


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
