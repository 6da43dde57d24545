"""Of the rows of each key one: the first or the last by some order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mrflight.compute import kernel
from mrflight.compute.schemas import empty_batch
from mrflight.compute.sort_codes import Rows, group_codes, sort_codes
from mrflight.compute.sorting import check_sortable, has_order, indices
from mrflight.config.sort_key import SortKey, ascending, columns_of
from mrflight.errors import ColumnNotFoundError
from mrflight.system.scratch import ScratchFolder
from mrflight.tasks.operators.combiner import combine_where_it_pays, to_same_layout
from mrflight.tasks.operators.grouped_aggregation import PartialAggregation
from mrflight.tasks.operators.singleton_groups import split_singleton_groups

Which = Literal["first", "last"]

Flags = npt.NDArray[np.bool_]


class FirstLastByKey(msgspec.Struct, frozen=True):
    """The rows of one key become one; null is a key like any other.

    It is the first or the last in the order of ``order_by``. Of rows that are equal in that, the
    first or last by all other columns that have an order, so that every attempt keeps the same;
    of rows that differ in none of them it is the one that came first or last. Without
    ``order_by`` that alone counts.
    """

    key: tuple[str, ...]
    keep: Which
    order_by: tuple[SortKey, ...] = ()

    def check(self, schema: pa.Schema, rows: str) -> None:
        """ColumnNotFoundError or KeyTypeError where rows of this schema have no such columns."""
        for name in self.key:
            if name not in schema.names:
                raise ColumnNotFoundError.among(name, schema.names, f"reduce.keep: {rows}")
        kernel.check_key_types(schema, self.key)
        check_sortable(schema, self.order_by, f"reduce.order_by: {rows}")

    def results(
        self, rows: Iterator[pa.RecordBatch], rows_bytes: int, scratch: ScratchFolder
    ) -> Iterator[pa.Table]:
        """The rows that are kept, each in one of the tables; none where there are no rows.

        All rows of a key are among ``rows``. JobFailedError where local files cannot be written.
        """
        yield from PartialAggregation(self, rows_bytes, scratch).results(rows, "kept")

    def combiner(self, memory_bytes: int) -> FirstLastByKeyCombiner:
        """For one map's rows, where the partitioner looks at no column but those of the key."""
        return FirstLastByKeyCombiner(self, memory_bytes)

    @property
    def group_by(self) -> tuple[str, ...]:
        return self.key

    def merge(self, rows: pa.Table) -> pa.Table:
        """The rows that are kept of these, in their order."""
        alone, shared = split_singleton_groups(rows, self.key)
        if not shared.num_rows:
            return rows
        kept = shared.take(indices(self._kept(shared)))
        return pa.concat_tables([alone, kept]) if alone.num_rows else kept

    merge_widening = finish = merge

    def _kept(self, table: pa.Table) -> Rows:
        """The rows of a table that are kept, in their order."""
        order, is_best, is_tied = self._ordered(table, self.order_by)
        if not self.order_by or not is_tied.any():
            return np.sort(order[is_best])
        doubtful = np.sort(order[is_tied])
        others = self._others(table.schema)
        among, is_best_of_tied, _ = self._ordered(table.take(indices(doubtful)), others)
        chosen = doubtful[among[is_best_of_tied]]
        return np.sort(np.concatenate([order[is_best & ~is_tied], chosen]))

    def _ordered(self, table: pa.Table, keys: Sequence[SortKey]) -> tuple[Rows, Flags, Flags]:
        """The rows in an order, and what each of them is.

        Those of one key stand together, the best first. Flags say whether a row is the best of its
        key, and whether it is as good as the best and not alone in that.
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

    def _others(self, schema: pa.Schema) -> tuple[SortKey, ...]:
        """The columns that `key` and `order_by` do not look at, where they have an order."""
        known = {*self.key, *columns_of(self.order_by)}
        return ascending(
            field.name
            for field in schema
            if field.name not in known
            and has_order(field.type)
            and schema.names.count(field.name) == 1
        )


class FirstLastByKeyCombiner:
    """Makes of one map's rows those that may be kept of all, where that makes them fewer."""

    def __init__(self, wanted: FirstLastByKey, memory_bytes: int) -> None:
        self._wanted = wanted
        self._memory_bytes = memory_bytes

    def combine(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What is sent of mapped batches; of no batches none, else at least one.

        Several rows of a key may be left. Raises SchemaMismatchError where the batches' columns
        differ from those of the first.
        """
        rows = to_same_layout(iter(batches))
        first = next(rows, None)
        if first is None:
            return
        yield empty_batch(first.schema)
        yield from combine_where_it_pays(self._wanted, chain([first], rows), self._memory_bytes)


def _begins(ordered: npt.NDArray[np.uint64]) -> Flags:
    """Of sorted numbers whether each is another one than the number before."""
    begins = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=begins[1:])
    return begins
