"""Which partition a row goes to.

A partitioner puts every row of a batch into exactly one partition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mrflight import kernel
from mrflight.canonical_floats import canonical_floats
from mrflight.comparable import comparable
from mrflight.errors import ColumnNotFoundError, KeyTypeError, UserFunctionError
from mrflight.functions import calling_user
from mrflight.plain_types import plain_type
from mrflight.shuffle.layout import plain_batch, plain_schema


class Partitioner(Protocol):
    """Places the rows of a batch."""

    partitions: int

    def ids(self, batch: pa.RecordBatch) -> pa.Int32Array:
        """The partition of each row; none is null or out of range."""


@dataclass(frozen=True)
class HashPartitioner(Partitioner):
    """Equal keys go together, whatever the layout they are in: see `mrflight.kernel`."""

    key: tuple[str, ...]
    partitions: int

    def ids(self, batch: pa.RecordBatch) -> pa.Int32Array:
        kernel.check_key_types(batch.schema, self.key)
        return kernel.partition_ids([batch.column(name) for name in self.key], self.partitions)


@dataclass(frozen=True)
class OnePartitioner(Partitioner):
    """All rows go to one partition."""

    partition: int
    partitions: int

    def ids(self, batch: pa.RecordBatch) -> pa.Int32Array:
        return pa.repeat(pa.scalar(self.partition, pa.int32()), batch.num_rows)


@dataclass
class RoundRobinPartitioner(Partitioner):
    """Rows are dealt out in turn; maps begin at different partitions, so that small ones spread."""

    partitions: int
    first: int = 0
    """The partition of the next row; goes on from batch to batch."""

    def ids(self, batch: pa.RecordBatch) -> pa.Int32Array:
        turn = (np.arange(batch.num_rows, dtype=np.int64) + self.first) % self.partitions
        self.first = (self.first + batch.num_rows) % self.partitions
        return pa.array(turn.astype(np.int32))


@dataclass(frozen=True)
class FunctionPartitioner(Partitioner):
    """A user's function places the rows: ``function(batch, key, partitions)`` to int32 ids."""

    function: Callable[[pa.RecordBatch, Sequence[str], int], pa.Array]
    name: str
    key: tuple[str, ...]
    partitions: int

    def ids(self, batch: pa.RecordBatch) -> pa.Int32Array:
        with calling_user(f"the partitioner {self.name}, given {batch.num_rows} rows,"):
            ids = self.function(batch, self.key, self.partitions)
        if not isinstance(ids, pa.Array) or not pa.types.is_integer(ids.type):
            raise self._wrong(f"it returned {_describe(ids)}", batch)
        if len(ids) != batch.num_rows:
            raise self._wrong(f"it returned {len(ids)}", batch)
        try:
            ids = ids.cast(pa.int32())
            kernel.check_partition_ids(ids, self.partitions)
        except (ValueError, pa.ArrowException) as error:
            raise UserFunctionError(f"the partitioner {self.name}: {error}") from error
        return ids

    def _wrong(self, returned: str, batch: pa.RecordBatch) -> UserFunctionError:
        return UserFunctionError(
            f"the partitioner {self.name} must return an Arrow array of one integer per row, the "
            f"partition; {returned} for {batch.num_rows} rows"
        )


@dataclass(frozen=True)
class RangePartitioner(Partitioner):
    """Partitions in order hold keys in order: every key of one is at most any key of the next.

    ``boundaries`` are the sorted keys at which a new partition begins: a row
    goes to the partition whose number is how many boundaries are at or below
    its key. Columns compare in their order; NaN comes behind all numbers and
    null behind everything, as in Arrow's sort.

    A key that is a boundary several times is spread over as many partitions,
    maps in their order: ``place`` is where this map stands among them, from 0
    to below 1. So the order of rows with equal keys is kept as well.
    """

    key: tuple[str, ...]
    boundaries: pa.RecordBatch
    partitions: int
    place: float = 0.0

    def ids(self, batch: pa.RecordBatch) -> pa.Int32Array:
        check_sortable(batch.schema, self.key)
        order = _sorted_with_boundaries(batch, self.key, self.boundaries)
        is_row = order < batch.num_rows
        is_last = order >= batch.num_rows + self.boundaries.num_rows
        below = np.cumsum(is_last)  # boundaries that are less than the row that stands here
        equal = np.cumsum(~is_row & ~is_last) - below
        chosen = below + (equal > 0) + (equal * self.place).astype(np.int64)
        ids = np.empty(batch.num_rows, np.int32)
        ids[order[is_row]] = chosen[is_row]
        return pa.array(ids)


def goes_by_values(partitioner: Partitioner) -> bool:
    """Whether a row's partition follows from its values, wherever it stands in its map."""
    return isinstance(partitioner, HashPartitioner | RangePartitioner | OnePartitioner)


def choose_boundaries(
    sample: pa.Table, key: Sequence[str], partitions: int, *, repeats: bool = False
) -> pa.RecordBatch:
    """The keys that cut a sample of keys into ``partitions`` parts of about equal size.

    At most ``partitions - 1`` of them, sorted. None comes twice, so that with fewer distinct
    keys than partitions the last partitions stay empty; unless it ``repeats``: then a key
    that fills several partitions is as many boundaries.
    """
    keys = sample.select(list(key))
    ordered = keys.take(sort_indices(keys, key))
    cuts = sorted({len(ordered) * part // partitions for part in range(1, partitions)})
    picked = ordered.take(pa.array(cuts if len(ordered) else [], pa.int64()))
    return _one_batch(picked if repeats else picked.filter(is_new(picked)))


def check_sortable(schema: pa.Schema, key: Sequence[str]) -> None:
    """Raise ColumnNotFoundError or KeyTypeError where rows cannot be ordered by ``key``."""
    for name in key:
        if name not in schema.names:
            raise ColumnNotFoundError.among(name, schema.names, "a batch for the range partitioner")
        kind = plain_type(schema.field(name).type)
        if pa.types.is_nested(kind) or pa.types.is_null(kind) or pa.types.is_interval(kind):
            raise KeyTypeError(
                f"column {name!r} is {kind}, which has no order; take another key, or make a plain "
                "column of it in the map"
            )


def sort_indices(table: pa.Table, names: Sequence[str]) -> pa.Array:
    """The order of the rows by these columns, NaN behind numbers and null behind everything.

    Rows of equal keys keep their order.
    """
    import pyarrow.compute as pc

    columns = {str(i): comparable(table[name]) for i, name in enumerate(names)}
    keys = pa.table({**columns, "row": pa.array(np.arange(table.num_rows))})
    return pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])


def _sorted_with_boundaries(
    batch: pa.RecordBatch, key: Sequence[str], boundaries: pa.RecordBatch
) -> npt.NDArray[np.int64]:
    """Positions in the order of keys: of rows, of boundaries and, behind those, of them again.

    Of equal keys boundaries come first, then the rows, then the boundaries again.
    """
    keys = batch.select(list(key))
    plain = plain_batch(keys, plain_schema(keys.schema))
    columns = {
        str(i): pa.chunked_array([column.cast(cut.type), cut, cut])
        for i, (column, cut) in enumerate(zip(plain.columns, boundaries.columns, strict=True))
    }
    behind = np.repeat(
        np.array([1, 0, 2], np.int8), [batch.num_rows, boundaries.num_rows, boundaries.num_rows]
    )
    table = pa.table({**columns, "behind": behind})
    return np.asarray(sort_indices(table, table.column_names), np.int64)


def is_new(rows: pa.Table) -> pa.Array:
    """Of sorted rows, whether each is another one than the row before."""
    new = np.zeros(rows.num_rows, np.bool_)
    new[:1] = True
    for column in rows.columns:
        encoded = canonical_floats(comparable(column)).combine_chunks().dictionary_encode().indices
        codes = encoded.fill_null(-1).to_numpy()
        new[1:] |= codes[1:] != codes[:-1]
    return pa.array(new)


def _one_batch(rows: pa.Table) -> pa.RecordBatch:
    columns = [column.combine_chunks() for column in rows.columns]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _describe(value: object) -> str:
    return f"an array of {value.type}" if isinstance(value, pa.Array) else type(value).__name__
