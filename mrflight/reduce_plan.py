"""Which partitions a reduce task takes, by the sizes that the maps have made: pure functions.

A task per partition is too many where they are small, as each costs some
milliseconds, and one is too few where a partition is as large as all others
together. So neighbours share a task up to a size that leaves every worker
several tasks, the largest first, so that the last to end are short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from mrflight.shuffle.registry import PartitionInfo

_TASKS_PER_WORKER = 16
"""With so many, partitions need not share tasks."""

_MOST_SHARED_BYTES = 8 * 2**20
"""Of partitions that share a task: a larger one takes so long that the task does not count."""

_LEAST_FILE_BYTES = 2**20
_MOST_FILE_BYTES = 64 * 2**20
"""Of shuffled rows that go into one part file where the number of partitions is ours to choose."""

File = tuple[PartitionInfo, ...]
"""The neighbouring partitions that go into one part file."""

T = TypeVar("T")


def plan_reduces(
    partitions: Sequence[PartitionInfo], workers: int, *, is_merged: bool
) -> list[tuple[File, ...]]:
    """The tasks, the largest first: of each its part files, of each file its partitions.

    Partitions without rows are left out, unless none has any: one is reduced for
    the result's schema. ``is_merged``: neighbours may share a part file as well.
    """
    filled = [info for info in partitions if info.rows] or list(partitions[:1])
    total = sum(map(_size, filled))
    file_bytes = min(max(total // workers, _LEAST_FILE_BYTES), _MOST_FILE_BYTES)
    files = list(_neighbours(filled, _size, file_bytes)) if is_merged else [(p,) for p in filled]
    most_tasks = workers * _TASKS_PER_WORKER
    task_bytes = min(total // most_tasks, _MOST_SHARED_BYTES) if len(files) > most_tasks else 0
    tasks = list(_neighbours(files, _file_size, task_bytes))
    return sorted(tasks, key=lambda files: sum(map(_file_size, files)), reverse=True)


def _neighbours(
    items: Sequence[T], size: Callable[[T], int], most_bytes: int
) -> Iterator[tuple[T, ...]]:
    """Neighbours together as long as they weigh no more than ``most_bytes``."""
    group: list[T] = []
    weight = 0
    for item in items:
        if group and weight + size(item) > most_bytes:
            yield tuple(group)
            group, weight = [], 0
        group.append(item)
        weight += size(item)
    yield tuple(group)


def _size(info: PartitionInfo) -> int:
    return info.size_bytes


def _file_size(file: File) -> int:
    return sum(map(_size, file))
