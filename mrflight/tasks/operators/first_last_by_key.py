"""Keeps one row of each key: the first or the last in some order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mrflight.compute import kernel
from mrflight.compute.singleton_groups import split_singleton_groups
from mrflight.compute.sort_codes import Rows, group_codes, sort_codes
from mrflight.compute.sorting import check_sortable, has_order, indices
from mrflight.config.sort_key import SortKey, ascending, columns_of
from mrflight.errors import ColumnNotFoundError
from mrflight.system.scratch import ScratchFolder
from mrflight.tasks.operators.combiner import MapCombiner, combine_rows, combine_where_it_pays
from mrflight.tasks.operators.grouped_aggregation import PartialAggregation

Which = Literal["first", "last"]

Flags = npt.NDArray[np.bool_]


class FirstLastByKey(msgspec.Struct, frozen=True):
    """Keeps one row of each key. Null is a key like any other.

    The first or the last row in the order of ``order_by`` is kept. Ties are broken by all other
    columns that have an order, so that every attempt keeps the same row, and then by the order of
    the input. Without ``order_by``, only the order of the input counts.
    """

    key: tuple[str, ...]
    keep: Which
    order_by: tuple[SortKey, ...] = ()

    def check(self, schema: pa.Schema, rows: str) -> None:
        """Raise ColumnNotFoundError or KeyTypeError if the schema lacks a key or an order."""
        for name in self.key:
            if name not in schema.names:
                raise ColumnNotFoundError.among(name, schema.names, f"reduce.keep: {rows}")
        kernel.check_key_types(schema, self.key)
        check_sortable(schema, self.order_by, f"reduce.order_by: {rows}")

    def results(
        self, rows: Iterator[pa.RecordBatch], rows_bytes: int, scratch: ScratchFolder
    ) -> Iterator[pa.Table]:
        """Yield the rows that are kept, in tables; yield no table if there are no rows.

        ``rows`` must hold all rows of each of its keys. Raises JobFailedError if local files cannot
        be written.
        """
        yield from PartialAggregation(self, rows_bytes, scratch).results(rows, "kept")

    def combiner(self, memory_bytes: int) -> MapCombiner:
        """Return a combiner for a map task whose partitioner looks only at the key.

        It drops rows that cannot be kept, as long as that leaves far fewer. Several rows of a key
        may be left.
        """
        combine = partial(combine_where_it_pays, self, memory_bytes=memory_bytes)
        return partial(combine_rows, combine=combine)

    @property
    def group_by(self) -> tuple[str, ...]:
        return self.key

    def combine(self, rows: pa.Table) -> pa.Table:
        """Return the rows that are kept, in their order."""
        alone, shared = split_singleton_groups(rows, self.key)
        if not shared.num_rows:
            return rows
        kept = shared.take(indices(self._kept_rows(shared)))
        return pa.concat_tables([alone, kept]) if alone.num_rows else kept

    combine_widening = finish = combine

    def _kept_rows(self, table: pa.Table) -> Rows:
        """Return the numbers of the rows that are kept, in ascending order."""
        order, is_best, is_tied = self._order_by_key(table, self.order_by)
        if not self.order_by or not is_tied.any():
            return np.sort(order[is_best])
        tied = np.sort(order[is_tied])
        tie_breakers = self._tie_breakers(table.schema)
        among, is_best_of_tied, _ = self._order_by_key(table.take(indices(tied)), tie_breakers)
        chosen = tied[among[is_best_of_tied]]
        return np.sort(np.concatenate([order[is_best & ~is_tied], chosen]))

    def _order_by_key(self, table: pa.Table, keys: Sequence[SortKey]) -> tuple[Rows, Flags, Flags]:
        """Return the rows sorted by key, the best of each key first, with two flags a row.

        The first flag says whether the row is the best of its key, the second whether it ties with
        the best one.
        """
        groups = group_codes(table, self.key)
        codes = groups.combine(sort_codes(table, keys))
        order = codes.order()
        if self.keep == "last":
            order = order[::-1]
        is_best = _begins(groups.values[order])
        begins = _begins(codes.values[order])
        starts = np.flatnonzero(begins)
        lengths = np.diff(starts, append=len(order))
        is_tied = np.repeat(is_best[starts] & (lengths > 1), lengths)
        return order, is_best, is_tied

    def _tie_breakers(self, schema: pa.Schema) -> tuple[SortKey, ...]:
        """Return the columns that break ties: all with an order but `key` and `order_by`."""
        known = {*self.key, *columns_of(self.order_by)}
        return ascending(
            field.name
            for field in schema
            if field.name not in known
            and has_order(field.type)
            and schema.names.count(field.name) == 1
        )


def _begins(ordered: npt.NDArray[np.uint64]) -> Flags:
    """Return for each of some sorted numbers whether it differs from the one before it."""
    begins = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=begins[1:])
    return begins
