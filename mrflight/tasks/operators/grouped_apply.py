"""Calls a user's reduce function for a partition of any size, in bounded memory where possible."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from mrflight.compute import kernel
from mrflight.compute.schemas import empty_table
from mrflight.system.scratch import ScratchFolder
from mrflight.tasks.operators.spill_partitions import (
    MAX_LEVEL,
    RowBuffer,
    SpillPartition,
    hash_partitioner,
    spill,
)


class GroupedApply:
    """Calls ``function`` with tables that hold all rows of each of their keys.

    A partition that fits is one table. A larger one is partitioned by the hash of ``key``. All rows
    of a key stay together, even if they do not fit. Without a key, all rows stay together.
    """

    def __init__(
        self,
        function: Callable[[pa.Table], pa.Table],
        schema: pa.Schema,
        key: Sequence[str],
        rows_bytes: int,
        scratch: ScratchFolder,
    ) -> None:
        self._function = function
        self._schema = schema
        self._key = tuple(key)
        self._rows_bytes = rows_bytes
        self._scratch = scratch

    def results(
        self, rows: Iterator[pa.RecordBatch], name: str = "rows", level: int = 0
    ) -> Iterator[pa.Table]:
        """Yield the tables that the function returns, at least one.

        Raises JobFailedError if local files cannot be written, and whatever the function raises.
        """
        held = RowBuffer()
        can_cut = bool(self._key) and level < MAX_LEVEL
        if not held.fill(rows, self._rows_bytes if can_cut else math.inf):
            whole = held.pop() if held.rows else empty_table(self._schema)
            yield self._function(whole.combine_chunks())
            return
        writer = hash_partitioner(self._scratch, name, self._key, level)
        for partition in spill(rows, held, writer, self._rows_bytes):
            too_large = partition.bytes > self._rows_bytes
            inner = MAX_LEVEL if too_large and self._is_one_key(partition) else level + 1
            yield from self.results(partition.batches(), f"{name}-{partition.number}", inner)
            pa.default_memory_pool().release_unused()

    def _is_one_key(self, partition: SpillPartition) -> bool:
        """Return whether all rows have the same hash, so that partitioning cannot separate them."""
        seen: set[int] = set()
        for batch in partition.peek():
            hashes = kernel.hash_rows([batch[name] for name in self._key]).to_numpy()
            seen |= {int(hashes.min()), int(hashes.max())}
            if len(seen) > 1:
                return False
        return True
