"""Which partition a row goes to.

A partitioner puts every row of a batch into exactly one partition, and is
picklable, so that it travels to the map tasks. Its answer is the order that
brings the rows of one partition together, in which they keep their own order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from mrflight import kernel
from mrflight.errors import ColumnNotFoundError, KeyTypeError, UserFunctionError


class Partitioner(Protocol):
    """Places the rows of a batch."""

    def place(self, batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        """``(indices, offsets)``: partition p gets the rows ``indices[offsets[p]:offsets[p + 1]]``.

        ``indices`` holds every row once; ``offsets`` has an entry more than there are partitions.
        """


@dataclass(frozen=True)
class HashPartitioner:
    """Equal keys go together, whatever the layout they are in: see `mrflight.kernel`."""

    key: tuple[str, ...]
    partitions: int

    def place(self, batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        kernel.check_key_types(batch.schema, self.key)
        return kernel.place([batch.column(name) for name in self.key], self.partitions)


@dataclass(frozen=True)
class RoundRobinPartitioner:
    """Rows are dealt out in turn; maps begin at different partitions, so that small ones spread."""

    partitions: int
    first: int = 0

    def place(self, batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        turn = (np.arange(batch.num_rows, dtype=np.int64) + self.first) % self.partitions
        return kernel.order_by_partition(pa.array(turn.astype(np.int32)), self.partitions)


@dataclass(frozen=True)
class FunctionPartitioner:
    """A user's function places the rows: ``function(batch, key, partitions)`` to int32 ids."""

    function: Callable[[pa.RecordBatch, Sequence[str], int], pa.Array]
    name: str
    key: tuple[str, ...]
    partitions: int

    def place(self, batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        ids = self.function(batch, self.key, self.partitions)
        if not isinstance(ids, pa.Array) or len(ids) != batch.num_rows:
            raise UserFunctionError(
                f"the partitioner {self.name} must return one partition id per row as an Arrow "
                f"array; it returned {_describe(ids)} for {batch.num_rows} rows"
            )
        try:
            return kernel.order_by_partition(ids.cast(pa.int32()), self.partitions)
        except (ValueError, pa.ArrowException) as error:
            raise UserFunctionError(f"the partitioner {self.name}: {error}") from error


@dataclass(frozen=True)
class RangePartitioner:
    """Partitions in order hold keys in order: every key of one is at most any key of the next.

    ``boundaries`` are the sorted keys at which a new partition begins: a row
    goes to the partition whose number is how many boundaries are at or below
    its key. Columns compare in their order; NaN comes behind all numbers and
    null behind everything, as in Arrow's sort.
    """

    key: tuple[str, ...]
    boundaries: pa.RecordBatch
    partitions: int

    def place(self, batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        check_sortable(batch.schema, self.key)
        order = _sorted_with_boundaries(batch, self.key, self.boundaries)
        is_row = order < batch.num_rows
        below = np.cumsum(~is_row)  # boundaries at or below the row that stands here
        ids = np.empty(batch.num_rows, np.int32)
        ids[order[is_row]] = below[is_row]
        return kernel.order_by_partition(pa.array(ids), self.partitions)


def choose_boundaries(sample: pa.Table, key: Sequence[str], partitions: int) -> pa.RecordBatch:
    """The keys that cut a sample of keys into ``partitions`` parts of about equal size.

    At most ``partitions - 1`` of them, sorted, none twice: with fewer distinct
    keys than partitions the last partitions stay empty.
    """
    keys = sample.select(list(key)).combine_chunks()
    ordered = keys.take(sort_indices(keys, key))
    cuts = [len(ordered) * part // partitions for part in range(1, partitions)]
    picked = ordered.take(pa.array(sorted(set(cuts)) if len(ordered) else [], pa.int64()))
    return _distinct(picked)


def check_sortable(schema: pa.Schema, key: Sequence[str]) -> None:
    """Raise ColumnNotFoundError or KeyTypeError where rows cannot be ordered by ``key``."""
    for name in key:
        if name not in schema.names:
            raise ColumnNotFoundError.among(name, schema.names, "the range partitioner's batch")
        kind = schema.field(name).type
        if pa.types.is_nested(kind) or pa.types.is_null(kind):
            raise KeyTypeError(
                f"column {name!r} is {kind}, which has no order; take another key, or make a plain "
                "column of it in the map"
            )


def _sorted_with_boundaries(
    batch: pa.RecordBatch, key: Sequence[str], boundaries: pa.RecordBatch
) -> np.ndarray:
    """Positions of rows, then of boundaries, in the order of their keys, boundaries first."""
    columns = {
        str(i): pa.chunked_array([batch.column(name).cast(cut.type), cut])
        for i, (name, cut) in enumerate(zip(key, boundaries.columns, strict=True))
    }
    behind = np.ones(batch.num_rows + boundaries.num_rows, np.int8)
    behind[batch.num_rows :] = 0
    table = pa.table({**columns, "behind": behind})
    return sort_indices(table, table.column_names).to_numpy()


def sort_indices(table: pa.Table, names: Sequence[str]) -> pa.Array:
    """The order of the rows by these columns, NaN behind numbers and null behind everything."""
    import pyarrow.compute as pc

    return pc.sort_indices(table, sort_keys=[(name, "ascending") for name in names])


def _distinct(rows: pa.Table) -> pa.RecordBatch:
    """Sorted rows without repetitions."""
    values = rows.to_pylist()
    keep = [i for i, row in enumerate(values) if i == 0 or repr(row) != repr(values[i - 1])]
    kept = rows.take(pa.array(keep, pa.int64())).combine_chunks()
    batches = kept.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], rows.schema)


def _describe(value: object) -> str:
    size = f" of {len(value)}" if isinstance(value, pa.Array) else ""
    return f"{type(value).__name__}{size}"
