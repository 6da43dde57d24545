"""Computes what Acero lacks of groups: variances, quantiles, and the states that merge to them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import pyarrow as pa

from mrflight.compute import arrow_compute as pc
from mrflight.compute.group_numbers import number_groups
from mrflight.compute.moments import merge_moments, variance
from mrflight.compute.packed_floats import pack_rows
from mrflight.compute.quantiles import measured, quantiles, sort_groups
from mrflight.compute.row_groups import RowGroups
from mrflight.compute.t_digest import estimate_quantiles, merge_digests
from mrflight.config.aggregates import Aggregate
from mrflight.tasks.operators.partial_columns import PartFunction


class GroupedStatistics:
    """Statistics of the columns of a table, by groups of its rows.

    Groups come in the order of their first rows.
    """

    def __init__(self, table: pa.Table, group_by: Sequence[str]) -> None:
        self._table = table
        self.numbers, self.first_rows = number_groups(table, group_by)
        self._sorted: dict[str, RowGroups] = {}
        """The groups sorted by each column of which there are exact quantiles."""

    @cached_property
    def _groups(self) -> RowGroups:
        return RowGroups.of(self.numbers, len(self.first_rows))

    def of(
        self, function: PartFunction, column: str, aggregate: Aggregate
    ) -> pa.Array | pa.ChunkedArray:
        """Return the result of each group, for one of `partial_columns.STATISTICS`."""
        values = self._table[column]
        match function:
            case "any_value":
                return values.take(self.first_rows)
            case "moments":
                return merge_moments(values, self.numbers, len(self.first_rows))
            case "digest":
                return merge_digests(values, self._groups)
            case "median" | "quantile":
                if column not in self._sorted:
                    self._sorted[column] = sort_groups(values, self._groups)
                return quantiles(values, self._sorted[column], aggregate.fraction)
            case "approx_median" | "approx_quantile":
                digests = merge_digests(pack_rows(measured(values)), self._groups)
                return estimate_quantiles(digests, values.type, aggregate.fraction)
            case _:
                states = pack_rows(values)
                moments = merge_moments(states, self.numbers, len(self.first_rows))
                return finish_moments(aggregate, moments)


def finish_moments(aggregate: Aggregate, moments: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return variances or standard deviations from the moments of each group."""
    result = variance(moments, sample=not aggregate.function.endswith("_pop"))
    is_deviation = aggregate.function.startswith("stddev")
    return pa.chunked_array([pc.sqrt(result) if is_deviation else result])
