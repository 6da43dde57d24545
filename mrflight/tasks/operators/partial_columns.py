"""Defines the partial columns that each aggregate needs, and their types."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import pyarrow as pa
from pyarrow import types

from mrflight.config.aggregates import (
    APPROXIMATIONS,
    COUNTS,
    QUANTILES,
    UNCOMBINED,
    VARIANCES,
    Aggregate,
    AggregateFunction,
)

PartFunction = AggregateFunction | Literal["moments", "digest", "any_value"]
"""What a partial column holds: an aggregate, or a state that others can be merged with. Moments
are those of `compute.moments`, and digests those of `compute.t_digest`. Any value of a column,
which may be null, tells its type."""

STATISTICS = frozenset[str](
    {"moments", "digest", "any_value", *QUANTILES, *APPROXIMATIONS, *VARIANCES}
)
"""The functions that `GroupedStatistics` computes, as Acero has nothing like them."""

_KEPT_ONES = 2**18


class Part(NamedTuple):
    """What a partial column is: ``function(column)`` of the rows that were combined."""

    function: PartFunction
    column: str | None
    fraction: float | None = None
    """The fraction of a quantile."""

    def __str__(self) -> str:
        column = "*" if self.column is None else repr(self.column)
        return f"{self.function}({column}{'' if self.fraction is None else f', {self.fraction}'})"


class PartialColumn(NamedTuple):
    """One column of partial rows."""

    name: str
    part: Part
    aggregate: Aggregate
    """The first aggregate that needs it."""

    @property
    def function(self) -> PartFunction:
        return self.part.function

    @property
    def column(self) -> str | None:
        return self.part.column

    @property
    def is_count(self) -> bool:
        return self.function in COUNTS

    @property
    def needs_all_rows(self) -> bool:
        """True if the values of several parts of a group cannot be combined."""
        return self.function in UNCOMBINED

    def nothing(self, rows: int, kind: pa.DataType) -> pa.Array:
        """Return the value that adds nothing to others, for so many rows."""
        return pa.repeat(pa.scalar(0 if self.is_count else None, kind), rows)

    @property
    def combining(self) -> PartFunction:
        """The function that combines several values to one."""
        if self.function in QUANTILES:  # `PartialAggregates.from_results` has one value of a key
            return "first"
        return "sum" if self.is_count else self.function

    def type_in(self, schema: pa.Schema) -> pa.DataType:
        """Return the type of the column for rows of ``schema``, which decides the result type."""
        if self.function == "count":
            return pa.int32()
        if self.function == "count_distinct":
            return pa.int64()
        kind = schema.field(self.column).type
        if self.function in STATISTICS:
            return _type_of_statistic(self.function, kind)
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
        if self.needs_all_rows:  # `PartialAggregates.from_results` adds them
            return self.nothing(batch.num_rows, kind)
        if self.column is None:
            return _repeated_ones(kind, batch.num_rows)
        column = batch[self.column]
        if self.is_count:
            return ones(column, kind)
        if self.function in ("moments", "digest"):
            return _state_of_single_rows(pa.chunked_array([column]))
        if types.is_float16(column.type) and self.function == "sum":
            column = column.cast(pa.float32())
        if types.is_decimal128(kind) and types.is_decimal128(column.type):
            return column.view(kind)  # it has the same scale and more digits
        return column if column.type == kind else column.cast(kind)


def _type_of_statistic(function: PartFunction, kind: pa.DataType) -> pa.DataType:
    # These modules take 5 ms to import, which most jobs do not need.
    from mrflight.compute.packed_floats import PACKED
    from mrflight.compute.quantiles import quantile_type

    if function == "any_value":
        return kind
    return PACKED if function in ("moments", "digest") else quantile_type(kind)


def _state_of_single_rows(column: pa.ChunkedArray) -> pa.Array:
    from mrflight.compute.packed_floats import pack_rows
    from mrflight.compute.quantiles import measured

    return pack_rows(measured(column)).combine_chunks()


def needed_columns(group_by: Sequence[str], aggregates: Sequence[Aggregate]) -> list[str]:
    """Return the columns that groups and aggregates need, the group's columns first."""
    given = [aggregate.column for aggregate in aggregates if aggregate.column is not None]
    return list(dict.fromkeys([*group_by, *given]))


def partial_columns(
    group_by: Sequence[str], aggregates: Sequence[Aggregate]
) -> tuple[PartialColumn, ...]:
    """Return the partial columns that the aggregates share."""
    found: dict[Part, PartialColumn] = {}
    for aggregate in aggregates:
        for part in decompose(aggregate):
            name = str(part)
            while name in group_by:
                name += "'"
            found.setdefault(part, PartialColumn(name, part, aggregate))
    return tuple(found.values())


def decompose(aggregate: Aggregate) -> list[Part]:
    """Return the parts that an aggregate is finished from."""
    function, column = aggregate.function, aggregate.column
    match function:
        case "mean":
            return [Part("sum", column), Part("count", column)]
        case "bool_and":
            return [Part("min", column)]
        case "bool_or":
            return [Part("max", column)]
        case "median" | "quantile":
            return [Part("quantile", column, aggregate.fraction)]
        case "approx_median" | "approx_quantile":
            return [Part("digest", column), Part("any_value", column)]
        case _:
            return [Part("moments" if function in VARIANCES else function, column)]


def ones(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column with 1 for each value and 0 for each null."""
    if column.null_count == 0:
        return _repeated_ones(kind, len(column))
    return column.is_valid().cast(kind)


def _repeated_ones(kind: pa.DataType, rows: int) -> pa.Array:
    kept = _kept_ones(kind)
    return kept[:rows] if rows <= len(kept) else pa.repeat(pa.scalar(1, kind), rows)


@lru_cache(maxsize=2)
def _kept_ones(kind: pa.DataType) -> pa.Array:
    """Return ones for most batches: to make them takes 3 ns a row."""
    return pa.repeat(pa.scalar(1, kind), _KEPT_ONES)
