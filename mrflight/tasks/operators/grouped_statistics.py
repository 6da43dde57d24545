"""Computes what Acero lacks of groups: variances, quantiles, and the states that merge to them."""

from __future__ import annotations

import pyarrow as pa

from mrflight.compute.moments import merge_moments, moments_of, variance
from mrflight.compute.quantiles import quantiles, sort_groups
from mrflight.compute.row_groups import RowGroups
from mrflight.compute.t_digest import digests_of, estimate_quantiles, merge_digests
from mrflight.config.aggregates import Aggregate
from mrflight.tasks.operators.partial_columns import PartFunction


class GroupedStatistics:
    """Statistics of the columns of a table, by groups of its rows."""

    def __init__(self, table: pa.Table, rows: pa.ChunkedArray) -> None:
        """``rows`` has a list of row numbers for each group."""
        self._table = table
        self._groups = RowGroups.of(rows)
        self._sorted: dict[str, RowGroups] = {}
        """The groups sorted by each column of which there are exact quantiles."""

    def of(
        self, function: PartFunction, column: str, aggregate: Aggregate
    ) -> pa.Array | pa.ChunkedArray:
        """Return the result of each group, for one of `partial_columns.STATISTICS`."""
        values = self._table[column]
        match function:
            case "moments":
                return merge_moments(values, self._groups)
            case "digest":
                return merge_digests(values, self._groups)
            case "median" | "quantile":
                if column not in self._sorted:
                    self._sorted[column] = sort_groups(values, self._groups)
                return quantiles(values, self._sorted[column], aggregate.fraction)
            case "approx_median" | "approx_quantile":
                digests = merge_digests(_chunked(digests_of(values)), self._groups)
                return estimate_quantiles(digests, values.type, aggregate.fraction)
            case _:
                moments = merge_moments(_chunked(moments_of(values)), self._groups)
                return finish_moments(aggregate, _chunked(moments))


def finish_moments(aggregate: Aggregate, moments: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return variances or standard deviations from the moments of each group."""
    import pyarrow.compute as pc

    result = variance(moments, sample=not aggregate.function.endswith("_pop"))
    return _chunked(pc.sqrt(result) if aggregate.function.startswith("stddev") else result)


def _chunked(column: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
