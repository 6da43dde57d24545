"""The specification of a partitioner, as a job file sets it and a task carries it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from mrflight.compute import kernel
from mrflight.compute.sorting import check_sortable
from mrflight.config.functions import FunctionRef
from mrflight.config.sort_key import SortKey
from mrflight.system.shared_payload import SharedPayload

if TYPE_CHECKING:  # a job without a shuffle needs none
    from mrflight.shuffle.client.partitioners import Partitioner


class PartitionerSpec(SharedPayload, msgspec.Struct, frozen=True):
    """A partitioner, of a kind that a job file names or of the kind ``one`` or ``function``."""

    kind: str
    key: tuple[str, ...]
    """The key columns. ``hash`` uses all columns if this is empty."""
    partitions: int
    function: FunctionRef | None = None
    sort_keys: tuple[SortKey, ...] = ()
    """The order of a range partitioner; its columns are the key."""
    boundaries: pa.RecordBatch | None = None
    """The boundaries of a range partitioner, once the input has been sampled."""
    maps: int | None = None
    """The number of maps: for ``in_order``, and for a range partitioner that may spread the rows of
    one key."""

    def check(self, schema: pa.Schema, rows: str = "the input") -> None:
        """Raise if rows of this schema cannot be partitioned; messages call them ``rows``."""
        if self.kind == "hash":
            kernel.check_key_types(schema, self.key or schema.names, rows)
        elif self.kind == "range":
            check_sortable(schema, self.sort_keys, rows)

    def partitioner(self, map_id: int) -> Partitioner:
        """Return the partitioner of one map task."""
        from mrflight.shuffle.client import partitioners
        from mrflight.shuffle.client.range_partitioner import RangePartitioner

        if self.kind == "hash":
            return partitioners.HashPartitioner(self.key, self.partitions)
        if self.kind == "range":
            assert self.boundaries is not None, "a range partitioner needs its sample first"
            position = map_id / self.maps if self.maps else 0.0
            return RangePartitioner(self.sort_keys, self.boundaries, self.partitions, position)
        if self.kind == "one":
            return partitioners.OnePartitioner(0, self.partitions)
        if self.kind == "in_order":
            assert self.maps is not None, "the maps are counted when they are planned"
            return partitioners.InOrderPartitioner(map_id, self.maps, self.partitions)
        if self.kind == "round_robin":
            return partitioners.RoundRobinPartitioner(
                self.partitions, first=map_id % self.partitions
            )
        assert self.function is not None, self.kind
        return partitioners.FunctionPartitioner(
            self.function.load(), str(self.function), self.key, self.partitions
        )
