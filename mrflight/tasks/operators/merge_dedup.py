"""Keeps one row of each key of a result, as a Delta merge needs it, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mrflight.compute import arrow_compute as pc
from mrflight.compute import kernel
from mrflight.compute.layout import canonical_schema, to_canonical
from mrflight.compute.sort_codes import Rows, group_codes, sort_codes
from mrflight.compute.sorting import check_sortable, indices, is_new
from mrflight.compute.types import comparable
from mrflight.config.sort_key import SortKey
from mrflight.errors import ColumnNotFoundError, OutputError
from mrflight.system.scratch import ScratchFolder
from mrflight.tasks.operators.grouped_apply import GroupedApply
from mrflight.tasks.operators.singleton_groups import split_singleton_groups


class MergeDedup(msgspec.Struct, frozen=True):
    """Keeps one row of each key. All rows of a key are in one partition."""

    keys: tuple[str, ...]
    order_by: str | None = None
    """The column whose greatest value is kept. Null is less than all values, NaN is greater."""
    shuffle_key: tuple[str, ...] = ()
    """The columns that the rows were partitioned by; set if a function may have changed them."""
    partitions: int = 0
    """The partitions of the shuffle by the hash of that key."""

    def check(self, schema: pa.Schema, rows: str) -> None:
        """Raise ColumnNotFoundError or KeyTypeError if the schema lacks a key or an order."""
        self.check_names(schema.names, rows)
        kernel.check_key_types(schema, self.keys)
        if self.order_by is not None:
            check_sortable(schema, [SortKey(self.order_by)], rows)

    def check_names(self, names: Sequence[str], rows: str) -> None:
        """Raise ColumnNotFoundError if a column is missing. Messages call the rows ``rows``."""
        ordered = [] if self.order_by is None else [("output.order_by", self.order_by)]
        for section, name in [*(("output.keys", name) for name in self.keys), *ordered]:
            if name not in names:
                raise ColumnNotFoundError.among(name, list(names), f"{section}: {rows}")

    def results(
        self,
        partition: int,
        tables: Iterator[pa.Table],
        rows_bytes: int,
        scratch: ScratchFolder,
    ) -> Iterator[pa.Table]:
        """Yield at least one table, with one row of each key.

        ``tables`` has at least one table. Raises OutputError if several rows have the same key and
        none can be chosen, or if a key is null. Raises JobFailedError if local files cannot be
        written.
        """
        first = next(tables)
        schema = canonical_schema(first.schema)
        self.check(schema, "the result")
        rows = self._check_partition(partition, first, tables, schema)
        resolve = partial(deduplicate, keys=self.keys, order_by=self.order_by)
        yield from GroupedApply(resolve, schema, self.keys, rows_bytes, scratch).results(
            rows, "unique"
        )

    def _check_partition(
        self, partition: int, first: pa.Table, tables: Iterator[pa.Table], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows, checked to be in the partition that their key belongs to."""
        for batch in first.to_batches():
            yield self._check_belongs(partition, to_canonical(batch, schema))
        for table in tables:
            for batch in table.to_batches():
                yield self._check_belongs(partition, to_canonical(batch, schema))

    def _check_belongs(self, partition: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch. Raise OutputError if a key belongs to another partition."""
        if not self.shuffle_key or not batch.num_rows:
            return batch
        columns = [batch.column(name) for name in self.shuffle_key]
        ids = np.asarray(kernel.partition_ids(columns, self.partitions))
        misplaced = np.flatnonzero(ids != partition)
        if len(misplaced):
            key = _describe_row(batch.select(list(self.shuffle_key)), int(misplaced[0]))
            raise OutputError(
                f"reduce.function: partition {partition} returned a row with {key}, which is a key "
                "of another partition, so rows with equal output.keys may be in different ones; "
                "return the inputs' key columns unchanged"
            )
        return batch


def deduplicate(table: pa.Table, keys: Sequence[str], order_by: str | None) -> pa.Table:
    """Return one row of each key. Raise OutputError for a null key, or if no row can be chosen."""
    check_no_nulls(table, keys)
    alone, shared = split_singleton_groups(table, keys)
    if not shared.num_rows:
        return table
    ordered = shared.take(_greatest_first(shared, keys, order_by))
    begins = is_new(ordered.select(list(keys))).to_numpy(zero_copy_only=False)
    first = np.flatnonzero(begins)
    if len(first) < ordered.num_rows:
        _check_unambiguous(ordered, first[np.cumsum(begins) - 1], keys, order_by)
    return pa.concat_tables([alone, ordered.take(pa.array(first))])


def check_no_nulls(table: pa.Table, keys: Sequence[str]) -> None:
    """Raise OutputError if a key is null."""
    for name in keys:
        if table[name].null_count:
            raise OutputError(
                f"output.keys: column {name!r} is null in a row of the result, which no later "
                "merge could match; drop such rows in the map, or give them a value"
            )


def _greatest_first(table: pa.Table, keys: Sequence[str], order_by: str | None) -> pa.Array:
    """Return the rows sorted by their keys, the greatest row of each key first."""
    codes = group_codes(table, keys)
    if order_by is not None:
        codes = codes.combine(sort_codes(table, [SortKey(order_by, descending=True)]))
    return indices(codes.order())


def _check_unambiguous(
    ordered: pa.Table, winners: Rows, keys: Sequence[str], order_by: str | None
) -> None:
    """Raise OutputError if a row that is dropped could have been kept just as well.

    ``winners`` has, for each row, the number of the row that is kept of its key.
    """
    others = np.flatnonzero(winners != np.arange(len(winners)))
    if order_by is None:
        key = _describe_row(ordered.select(list(keys)), int(others[0]))
        raise OutputError(
            f"output.keys: several rows of the result have {key}; "
            "name a column in output.order_by to keep the row with its greatest value, or "
            "combine them in [reduce]"
        )
    tied = others[_same(ordered.select([order_by]), others, winners[others])]
    differing = tied[~_same(ordered, tied, winners[tied])]
    if len(differing):
        row = int(differing[0])
        raise OutputError(
            f"output.order_by: different rows of the result have "
            f"{_describe_row(ordered.select([*keys, order_by]), row)}, so none can be chosen; "
            "use a column in which they differ, or combine them in [reduce]"
        )


def _same(table: pa.Table, ones: Rows, others: Rows) -> npt.NDArray[np.bool_]:
    """Return which pairs of rows are equal in all columns. Nulls are equal, and so are NaNs."""
    equal = np.ones(len(ones), np.bool_)
    for column in table.columns:
        one, other = column.take(pa.array(ones)), column.take(pa.array(others))
        if pa.types.is_nested(column.type):
            pairs = zip(one.to_pylist(), other.to_pylist(), strict=True)
            equal &= np.fromiter((a == b for a, b in pairs), np.bool_, len(ones))
        else:
            equal &= _same_values(one, other)
    return equal


def _same_values(one: pa.ChunkedArray, other: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    one, other = comparable(one), comparable(other)
    same = pc.fill_null(pc.equal(one, other), False)
    same = pc.or_(same, pc.and_(pc.is_null(one), pc.is_null(other)))
    if pa.types.is_floating(one.type):
        nans = pc.and_(pc.is_nan(one), pc.is_nan(other))
        same = pc.or_(same, pc.fill_null(nans, False))
    return np.asarray(same)


def _describe_row(rows: pa.Table | pa.RecordBatch, row: int) -> str:
    """Return a row's values for a message: ``id = 5 and day = '2026-11-20'``."""
    (values,) = rows.slice(row, 1).to_pylist()
    texts = {name: repr(v) if isinstance(v, str) else str(v) for name, v in values.items()}
    return " and ".join(f"{name} = {text}" for name, text in texts.items())
