"""Partitioners: each puts every row of a batch into exactly one partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from mrflight.compute import kernel
from mrflight.compute.arrays import to_arrow
from mrflight.config.functions import calling_user
from mrflight.errors import UserFunctionError


class Partitioner(Protocol):
    """Assigns a partition to each row of a batch."""

    partitions: int

    def ids(self, batch: pa.RecordBatch) -> pa.Int32Array:
        """Return the partition of each row; none is null or out of range."""


@dataclass(frozen=True)
class HashPartitioner(Partitioner):
    """Puts equal keys into one partition, whatever their layout: see `mrflight.compute.kernel`."""

    key: tuple[str, ...]
    """The key columns; if empty, all columns are the key."""
    partitions: int

    def ids(self, batch: pa.RecordBatch) -> pa.Int32Array:
        key = self.key or batch.schema.names
        kernel.check_key_types(batch.schema, key)
        return kernel.partition_ids([batch.column(name) for name in key], self.partitions)


@dataclass(frozen=True)
class OnePartitioner(Partitioner):
    """Puts all rows into one partition."""

    partition: int
    partitions: int

    def ids(self, batch: pa.RecordBatch) -> pa.Int32Array:
        return pa.repeat(pa.scalar(self.partition, pa.int32()), batch.num_rows)


@dataclass(frozen=True)
class InOrderPartitioner(Partitioner):
    """Puts all rows of a map into one partition, which may also hold those of its neighbours.

    So the partitions, one after the other, have the rows of all maps in the order of the maps.
    """

    map_id: int
    maps: int
    partitions: int

    def ids(self, batch: pa.RecordBatch) -> pa.Int32Array:
        partition = self.map_id * self.partitions // self.maps
        return pa.repeat(pa.scalar(partition, pa.int32()), batch.num_rows)


@dataclass
class RoundRobinPartitioner(Partitioner):
    """Deals rows out in turn; maps start at different partitions, so that small maps spread."""

    partitions: int
    first: int = 0
    """The partition of the next row; continues from batch to batch."""

    def ids(self, batch: pa.RecordBatch) -> pa.Int32Array:
        turn = (np.arange(batch.num_rows, dtype=np.int64) + self.first) % self.partitions
        self.first = (self.first + batch.num_rows) % self.partitions
        return to_arrow(turn.astype(np.int32))


@dataclass(frozen=True)
class FunctionPartitioner(Partitioner):
    """Calls a user's function, ``function(batch, key, partitions)``, that returns int32 ids."""

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


def _describe(value: object) -> str:
    return f"an array of {value.type}" if isinstance(value, pa.Array) else type(value).__name__
