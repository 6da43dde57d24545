"""How many partitions a stage has, and why so many: a pure function."""

from __future__ import annotations

from typing import Literal

import msgspec

from mrflight.config.memory import MemoryPlan
from mrflight.config.spec import JobSpec
from mrflight.errors import JobFileError
from mrflight.ids import MAX_PARTITIONS

AUTO_PARTITION_BYTES = 64 * 2**20
"""Of rows in memory per partition where ``partitions`` is auto. With half as much lineitem's six
million rows took 1.1 of the time to HDFS, in two of three pairs; in the third they took less."""

LEAST_BLOCK_BYTES = 16 * 2**10
"""A shuffle writer's budget should hold such a block for each partition; see transport.py."""

Reason = Literal[
    "told", "rows", "workers", "writer", "most", "limit", "broadcast", "no key", "total"
]


class PartitionCount(msgspec.Struct, frozen=True):
    """How many partitions there are, and what has decided it."""

    number: int
    reason: Reason
    """``told`` by the job; as many as the ``rows`` fill; one for each of the ``workers``; as many
    as a ``writer`` can hold a block for; the ``most`` that a shuffle can have; one, which the first
    rows of each map go to by a ``limit``, from which all rows are ``broadcast``, where sql has
    ``no key`` that tells which rows it is to see together, or where the result is a ``total``, one
    row of all rows."""
    rows_bytes: int
    """That are shuffled, in memory, roughly."""
    each_bytes: int
    """Of rows that one partition is to have: less than usual where a reducer has little memory."""


def count_partitions(
    spec: JobSpec, rows_bytes: int, workers: int, memory: MemoryPlan
) -> PartitionCount:
    """The number of partitions: as told, or for ``rows_bytes`` of rows as many as serve them best.

    So many that each fits a reducer's memory with room for what is made of it,
    and that every worker has some, unless one holds all; so few that blocks stay worth sending.
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
                f"shuffle.partitions: {wanted} is not from 1 to {MAX_PARTITIONS}; 'auto' takes as "
                "many as the input, the workers and the memory ask for"
            )
        return PartitionCount(wanted, "told", rows_bytes, each)
    number, reason = _wanted_by(rows_bytes, each, workers)
    held = max(workers, memory.writer // LEAST_BLOCK_BYTES)
    if number > min(held, MAX_PARTITIONS):
        number = min(held, MAX_PARTITIONS)
        reason = "writer" if number == held else "most"
    return PartitionCount(number, reason, rows_bytes, each)


def _wanted_by(rows_bytes: int, each_bytes: int, workers: int) -> tuple[int, Reason]:
    """By the rows, and the workers that are to share them."""
    needed = max(1, -(-rows_bytes // each_bytes))
    return (workers, "workers") if 1 < needed < workers else (needed, "rows")
