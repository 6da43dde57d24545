"""Decides how many partitions a stage has, and says why: a pure function."""

from __future__ import annotations

from typing import Literal

import msgspec

from mrflight.config.memory import MemoryPlan
from mrflight.config.spec import JobSpec
from mrflight.errors import JobFileError
from mrflight.ids import MAX_PARTITIONS

AUTO_PARTITION_BYTES = 64 * 2**20
"""Rows in memory per partition if ``partitions`` is auto. With half as much, writing lineitem's six
million rows to HDFS took 1.1 of the time in two of three pairs, and less in the third."""

_BROADCAST_BYTES = 64 * 2**20
_QUERY_PARTITION_BYTES = 256 * 2**20
"""Rows in memory per partition of a query. It is divided further where joins hold too many rows."""

MIN_BLOCK_BYTES = 16 * 2**10
"""A writer's memory should hold such a block for each partition. Blocks of this size are written to
Flight at a sixth of the speed of blocks of 1 MiB (221 instead of 1,393 MB/s)."""

Reason = Literal[
    "set", "rows", "workers", "writer", "maximum", "limit", "broadcast", "no key", "total"
]


class PartitionCount(msgspec.Struct, frozen=True):
    """The number of partitions and the reason for it."""

    number: int
    reason: Reason
    """The reason for the number:
    ``set``: the job; ``rows``: as many as the rows fill; ``workers``: one for each worker;
    ``writer``: as many as a map has memory for; ``maximum``: the limit of a shuffle.
    These reasons lead to one partition: ``limit``: maps send only their first rows; ``broadcast``:
    every task reads all rows; ``no key``: sql without a key sees all rows; ``total``: one row is
    made of all rows."""
    rows_bytes: int
    """The size of the shuffled rows in memory, roughly."""
    each_bytes: int
    """The target size of a partition in memory; smaller if a reduce has little memory."""


def count_partitions(
    spec: JobSpec, rows_bytes: int, workers: int, memory: MemoryPlan
) -> PartitionCount:
    """Return the number of partitions that the job sets, or one that suits ``rows_bytes``.

    Each partition fits into a quarter of a reduce's memory, and every worker gets one, unless one
    partition holds all rows. There are not so many that blocks become too small.
    """
    each = min(AUTO_PARTITION_BYTES, max(1, memory.reducer // 4))
    if spec.reduce is not None and spec.reduce.limit is not None:
        return PartitionCount(1, "limit", rows_bytes, each)
    if spec.reduce is not None and spec.reduce.is_total:
        return PartitionCount(1, "total", rows_bytes, each)
    has_keys = any(section.key for section in spec.inputs.values())
    if spec.reduce is not None and spec.reduce.sql is not None and not has_keys:
        return PartitionCount(1, "no key", rows_bytes, each)
    wanted = spec.shuffle.partitions
    if wanted != "auto":
        if not 1 <= wanted <= MAX_PARTITIONS:
            raise JobFileError(
                f"shuffle.partitions must be from 1 to {MAX_PARTITIONS}, or 'auto', not {wanted}"
            )
        return PartitionCount(wanted, "set", rows_bytes, each)
    number, reason = _count_by_size(rows_bytes, each, workers)
    held = max(workers, memory.writer // MIN_BLOCK_BYTES)
    if number > min(held, MAX_PARTITIONS):
        number = min(held, MAX_PARTITIONS)
        reason = "writer" if number == held else "maximum"
    return PartitionCount(number, reason, rows_bytes, each)


EXPECTED_TO_FIT = "what its joins hold is expected to fit into memory"
"""Why one task runs a query whose rows do not fit into its memory. It is divided if it needs more
memory than that."""


class QueryDivision(msgspec.Struct, frozen=True):
    """Into how many partitions a query is divided, and by how many threads a task runs it."""

    partitions: int
    threads: int
    """The threads of the only task, if there is one."""
    broadcast_bytes: int
    """What a table may take in the memory of a task, to be sent to all tasks."""
    why_whole: str = ""
    """Why one task runs all of it."""
    held_bytes: int = 0
    """What joins may be expected to hold, for one task to run all of it nevertheless; 0 if it may
    not be."""
    task_bytes: int = 0
    """The memory of a task that runs all of it and reads all tables from files: what all workers
    have for tasks that reduce, which do not run beside it. 0 for that of so many threads."""

    @property
    def is_whole(self) -> bool:
        """True if one task runs all of it."""
        return self.partitions == 1


def divide_query(spec: JobSpec, rows_bytes: int, workers: int, memory: MemoryPlan) -> QueryDivision:
    """Return how a query is divided that reads so many bytes of rows.

    One task runs it if all rows fit into its memory, also if a join holds them: that takes less
    work than to send rows to other tasks. It then has the threads of all workers of this machine.
    """
    threads = workers if spec.cluster.executor == "local" else 1
    # A task that reads a stage has half of the memory, and its joins a sixth of that.
    broadcast = min(_BROADCAST_BYTES, memory.reducer // 2 // 6)
    counted = count_partitions(spec, rows_bytes, workers, memory)
    if counted.number == 1:
        is_set = counted.reason == "set"
        why = "shuffle.partitions is 1" if is_set else "its tables are small"
        return QueryDivision(1, threads, broadcast, why)
    if counted.reason == "set":
        return QueryDivision(counted.number, threads, broadcast)
    task = max(0, threads * (memory.reducer + memory.encoder) - memory.writer)
    if threads > 1 and rows_bytes <= threads * memory.reducer // 4:
        why = "all rows fit into memory"
        return QueryDivision(1, threads, broadcast, why, task_bytes=task)
    each = min(_QUERY_PARTITION_BYTES, max(1, memory.reducer // 4))
    number = min(counted.number, max(2 * workers, -(-rows_bytes // each)))
    held = task // 4 if threads > 1 else 0
    return QueryDivision(number, threads, broadcast, held_bytes=held, task_bytes=task)


def _count_by_size(rows_bytes: int, each_bytes: int, workers: int) -> tuple[int, Reason]:
    """Return the number by the size of the rows and the number of workers."""
    needed = max(1, -(-rows_bytes // each_bytes))
    return (workers, "workers") if 1 < needed < workers else (needed, "rows")
