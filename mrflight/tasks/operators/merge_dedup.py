"""Keeps one row of each key of a result, as a Delta merge needs it, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import msgspec
import numpy as np
import pyarrow as pa

from mrflight.compute import kernel
from mrflight.compute.deduplication import deduplicate, describe_row
from mrflight.compute.layout import canonical_schema, to_canonical
from mrflight.compute.sorting import check_sortable
from mrflight.config.sort_key import SortKey
from mrflight.errors import ColumnNotFoundError, OutputError
from mrflight.system.scratch import ScratchFolder
from mrflight.tasks.operators.grouped_apply import GroupedApply


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
            key = describe_row(batch.select(list(self.shuffle_key)), int(misplaced[0]))
            raise OutputError(
                f"reduce.function: partition {partition} returned a row with {key}, which is a key "
                "of another partition, so rows with equal output.keys may be in different ones; "
                "return the inputs' key columns unchanged"
            )
        return batch
