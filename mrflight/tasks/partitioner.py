"""The partitioner of an input, as a job file names it and a task carries it."""

from __future__ import annotations

import msgspec
import pyarrow as pa

from mrflight.compute import kernel
from mrflight.compute.sorting import check_sortable
from mrflight.config.functions import FunctionRef
from mrflight.config.sort_key import SortKey
from mrflight.shuffle.client.partitioners import (
    FunctionPartitioner,
    HashPartitioner,
    OnePartitioner,
    Partitioner,
    RoundRobinPartitioner,
)
from mrflight.shuffle.client.range_partitioner import RangePartitioner
from mrflight.system.in_common import InCommon


class PartitionerSpec(InCommon, msgspec.Struct, frozen=True):
    """``hash``, ``range``, ``one``, ``round_robin`` or ``function``, with what it needs."""

    kind: str
    key: tuple[str, ...]
    """With none, ``hash`` looks at all columns."""
    partitions: int
    function: FunctionRef | None = None
    sort_keys: tuple[SortKey, ...] = ()
    """The order of a range partitioner; its columns are the key."""
    boundaries: pa.RecordBatch | None = None
    """Of a range partitioner, once the input has been sampled."""
    maps: int | None = None
    """Of a range partitioner that may spread the rows of one key: how many maps there are."""

    def check(self, schema: pa.Schema) -> None:
        """Raise where rows of this schema cannot be partitioned so."""
        if self.kind == "hash":
            kernel.check_key_types(schema, self.key or schema.names)
        elif self.kind == "range":
            check_sortable(schema, self.sort_keys)

    def partitioner(self, map_id: int) -> Partitioner:
        """The partitioner of one map."""
        if self.kind == "hash":
            return HashPartitioner(self.key, self.partitions)
        if self.kind == "range":
            assert self.boundaries is not None, "a range partitioner needs its sample first"
            place = map_id / self.maps if self.maps else 0.0
            return RangePartitioner(self.sort_keys, self.boundaries, self.partitions, place)
        if self.kind == "one":
            return OnePartitioner(0, self.partitions)
        if self.kind == "round_robin":
            return RoundRobinPartitioner(self.partitions, first=map_id % self.partitions)
        assert self.function is not None, self.kind
        return FunctionPartitioner(
            self.function.load(), str(self.function), self.key, self.partitions
        )
