"""Defines the partial columns that each aggregate needs, and their types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
from pyarrow import types

from mrflight.tasks.operators.aggregates import Aggregate, AggregateFunction


class PartialColumn(NamedTuple):
    """One column of partial rows: ``function(column)`` of the rows that were combined."""

    name: str
    function: AggregateFunction
    column: str | None
    aggregate: Aggregate
    """The first aggregate that needs it."""

    @property
    def is_count(self) -> bool:
        return self.function in ("count", "count_distinct")

    @property
    def combining(self) -> AggregateFunction:
        """The function that combines several values to one."""
        return "sum" if self.is_count else self.function

    def type_in(self, schema: pa.Schema) -> pa.DataType:
        """Return the type of the column for rows of ``schema``, which decides the result type."""
        if self.function == "count":
            return pa.int32()
        if self.function == "count_distinct":
            return pa.int64()
        kind = schema.field(self.column).type
        if self.function != "sum":
            return kind
        if types.is_decimal256(kind):
            return pa.decimal256(76, kind.scale)
        if types.is_decimal(kind):
            return pa.decimal128(38, kind.scale)
        if types.is_floating(kind):
            return pa.float64()
        return kind if types.is_duration(kind) or types.is_uint64(kind) else pa.int64()

    def from_single_rows(self, batch: pa.RecordBatch, kind: pa.DataType) -> pa.Array:
        """Return the value for each single row, in the type ``kind``."""
        if self.function == "count_distinct":  # `PartialAggregates.from_distinct` counts them
            return pa.repeat(pa.scalar(0, kind), batch.num_rows)
        if self.column is None:
            return pa.repeat(pa.scalar(1, kind), batch.num_rows)
        column = batch[self.column]
        if self.is_count:
            return ones(column, kind)
        if types.is_float16(column.type) and self.function == "sum":
            column = column.cast(pa.float32())
        if types.is_decimal128(kind) and types.is_decimal128(column.type):
            return column.view(kind)  # it has the same scale and more digits
        return column if column.type == kind else column.cast(kind)


def needed_columns(group_by: Sequence[str], aggregates: Sequence[Aggregate]) -> list[str]:
    """Return the columns that groups and aggregates need, the group's columns first."""
    given = [aggregate.column for aggregate in aggregates if aggregate.column is not None]
    return list(dict.fromkeys([*group_by, *given]))


def partial_columns(
    group_by: Sequence[str], aggregates: Sequence[Aggregate]
) -> tuple[PartialColumn, ...]:
    """Return the partial columns that the aggregates share."""
    found: dict[tuple[AggregateFunction, str | None], PartialColumn] = {}
    for aggregate in aggregates:
        for function, column in decompose(aggregate):
            name = f"{function}({'*' if column is None else repr(column)})"
            while name in group_by:
                name += "'"
            found.setdefault((function, column), PartialColumn(name, function, column, aggregate))
    return tuple(found.values())


def decompose(aggregate: Aggregate) -> list[tuple[AggregateFunction, str | None]]:
    """Return the function and the column of each partial column that an aggregate needs."""
    if aggregate.function == "mean":
        return [("sum", aggregate.column), ("count", aggregate.column)]
    return [(aggregate.function, aggregate.column)]


def ones(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column with 1 for each value and 0 for each null."""
    if column.null_count == 0:
        return pa.repeat(pa.scalar(1, kind), len(column))
    return column.is_valid().cast(kind)
