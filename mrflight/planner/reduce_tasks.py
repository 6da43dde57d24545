"""Plans reduce tasks by the actual sizes of the partitions: pure functions.

A task per partition is too many if partitions are small, because a task costs some milliseconds,
and too few if one partition is as large as all others together. So small neighbouring partitions
are coalesced into one task, up to a size that leaves every worker several tasks, and a skewed
partition, which would keep one worker busy when the others are done, is split into slices. The
largest tasks run first, so that the last to end are short. Spark's adaptive query execution does
the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from operator import itemgetter
from typing import NamedTuple, TypeVar

from mrflight.errors import InconsistentMapOutputError
from mrflight.planner.keys import ONLY_SIDE
from mrflight.shuffle.wire.partition_info import PartitionInfo
from mrflight.shuffle.wire.tickets import PartitionSlice
from mrflight.tasks.side_slice import SideSlice
from mrflight.tasks.stage_rows import StagePartition

_TASKS_PER_WORKER = 16
"""Up to so many tasks, partitions are not coalesced into tasks."""

_MAX_COALESCED_BYTES = 8 * 2**20
"""The size of a coalesced task. A larger one takes so long that the cost of a task is small."""

_FILES_PER_TASK = 12
"""Part files per task if closing a file takes time. A task closes files while it writes others, so
it waits only for the last one: half a second on HDFS, in which it would write three."""

_MAX_TASKS_PER_WORKER = 4
"""The limit of tasks with `_FILES_PER_TASK` files or more."""

_SLICES_PER_WORKER = 4
"""The slices that a worker's part of all rows would make."""

_MIN_FILE_BYTES = 2**20
_MAX_FILE_BYTES = 32 * 2**20
"""Shuffled bytes of the partitions that are coalesced into one part file. Few files are hard to
distribute evenly: of seven files one of two workers gets four and the other three."""

_MIN_SLICE_BYTES = 16 * 2**20
"""Each slice is a task, which takes some milliseconds, and leaves a part file."""

File = tuple[StagePartition, ...]
"""The neighbouring partitions that go into one part file."""

T = TypeVar("T")


class ReduceTaskPlan(NamedTuple):
    """The part files of one reduce task, and the partitions of each."""

    files: tuple[File, ...]
    side_slice: SideSlice | None = None
    """The slice that the task reads of its only partition, if that is skewed."""

    @property
    def partition(self) -> StagePartition:
        """The first partition, or the only one."""
        return self.files[0][0]

    @property
    def partitions(self) -> list[StagePartition]:
        """The partitions of all files."""
        return [partition for file in self.files for partition in file]

    @property
    def partition_slice(self) -> PartitionSlice | None:
        """The slice of the sliced side; None if the task reads its partitions whole."""
        return self.side_slice.partition_slice if self.side_slice else None

    @property
    def sliced(self) -> PartitionInfo:
        """The partition of the sliced side."""
        assert self.side_slice is not None, self
        return self.partition.infos[self.side_slice.side]

    def with_partitions(self, partitions: Mapping[int, StagePartition]) -> ReduceTaskPlan:
        """Return the same plan with newer locations and sizes of its partitions."""
        files = tuple(tuple(partitions[each.partition] for each in file) for file in self.files)
        return ReduceTaskPlan(files, self.side_slice)

    def is_away_from(self, placements: Sequence[Sequence[tuple[str, ...]]]) -> bool:
        """Return whether a partition is elsewhere in ``placements``, one for each side."""
        return any(
            placement[info.partition] != info.locations
            for each in self.partitions
            for placement, info in zip(placements, each.infos, strict=True)
        )

    def has_moved(self, before: ReduceTaskPlan) -> bool:
        """Return whether a partition has moved or was written again since ``before``."""
        return any(
            (now.locations, now.generation) != (then.locations, then.generation)
            for each, other in zip(self.partitions, before.partitions, strict=True)
            for now, then in zip(each.infos, other.infos, strict=True)
        )

    def has_other_slices(self, before: ReduceTaskPlan) -> bool:
        """Return whether the slice has other rows, because the partition was written again."""
        return self.partition_slice is not None and any(
            now.generation != then.generation
            for now, then in zip(self.partition.infos, before.partition.infos, strict=True)
        )

    @property
    def position(self) -> tuple[int, int]:
        """The position of the task's results among those of all tasks."""
        return self.partition.partition, self.side_slice.number if self.side_slice else 0

    @property
    def size_bytes(self) -> int:
        return sum(map(_file_size, self.files)) // (
            self.partition_slice.of if self.partition_slice else 1
        )


def plan_reduce_tasks(
    partitions: Sequence[StagePartition],
    workers: int,
    *,
    coalesces: bool,
    slow_close: bool = False,
) -> list[ReduceTaskPlan]:
    """Return the tasks, largest first.

    Partitions without rows are left out. If none has rows, one is reduced for the schema of the
    result. ``coalesces``: small neighbours go into one part file. ``slow_close``: closing a part
    file takes time, so that a task gets several.
    """
    filled = [each for each in partitions if each.rows] or list(partitions[:1])
    total = sum(map(_size, filled))
    file_bytes = min(max(total // workers, _MIN_FILE_BYTES), _MAX_FILE_BYTES)
    files = list(_neighbours(filled, _size, file_bytes)) if coalesces else [(p,) for p in filled]
    if slow_close:
        rounds = min(max(1, len(files) // (workers * _FILES_PER_TASK)), _MAX_TASKS_PER_WORKER)
        return largest_first(map(ReduceTaskPlan, _evenly(files, workers * rounds)))
    max_tasks = workers * _TASKS_PER_WORKER
    task_bytes = min(total // max_tasks, _MAX_COALESCED_BYTES) if len(files) > max_tasks else 0
    tasks = [ReduceTaskPlan(files) for files in _neighbours(files, _file_size, task_bytes)]
    return largest_first(tasks)


def largest_first(tasks: Iterable[ReduceTaskPlan]) -> list[ReduceTaskPlan]:
    """Return the tasks ordered by size, so that the last to end are short."""
    return sorted(tasks, key=lambda task: task.size_bytes, reverse=True)


def split_skewed(
    partitions: Sequence[StagePartition],
    workers: int,
    sides: Mapping[int, bool] = ONLY_SIDE,
    min_bytes: int = _MIN_SLICE_BYTES,
) -> list[ReduceTaskPlan]:
    """Return the slices of skewed partitions, whose workers would be the last to finish.

    A partition is skewed if it has at least half of a worker's part of all rows, and is more than
    twice as large as the average. Its largest side of those in ``sides`` is sliced, if that is at
    least half of the partition. No slice is smaller than ``min_bytes``. If the slices of that side
    have an outer remainder, which is the value in ``sides``, the remainder is a task as well,
    unless the other sides have no rows.
    """
    filled = [each for each in partitions if each.rows]
    total = sum(map(_size, filled))
    slice_bytes = max(total / (workers * _SLICES_PER_WORKER), min_bytes)
    return [
        ReduceTaskPlan(((each,),), side_slice)
        for each in filled
        if each.size_bytes > 2 * total / len(filled) and each.size_bytes >= total / (2 * workers)
        for side_slice in _slice_partition(each, sides, slice_bytes)
    ]


def _slice_partition(
    partition: StagePartition, sides: Mapping[int, bool], slice_bytes: float
) -> list[SideSlice]:
    """Return the slices of the partition's largest side; none if the side is too small to slice."""
    side = max(sides, key=lambda number: partition.infos[number].size_bytes)
    info = partition.infos[side]
    count = int(info.size_bytes // slice_bytes)
    if count <= 1 or 2 * info.size_bytes < partition.size_bytes:
        return []
    has_remainder = sides[side] and partition.rows > info.rows
    return [SideSlice(number, count, side) for number in range(count + has_remainder)]


def check_slices(read: Iterable[tuple[PartitionInfo, int | None]]) -> None:
    """Check that the slices of each partition have all of its rows, by the counts that were read.

    The count is None for a slice that was not read to its end, because no more rows were needed;
    its partition cannot be checked. Raises InconsistentMapOutputError if rows are missing, which
    no attempt alone could notice.
    """
    infos: dict[int, PartitionInfo] = {}
    found: Counter[int] = Counter()
    unchecked: set[int] = set()
    for info, rows in read:
        infos[info.partition] = info
        if rows is None:
            unchecked.add(info.partition)
        else:
            found[info.partition] += rows
    for number, info in infos.items():
        if number not in unchecked and (rows := found[number]) != info.rows:
            raise InconsistentMapOutputError(
                f"partition {number}: {info.locations[0]} gave {rows} rows in slices, of the "
                f"{info.rows} that were committed"
            )


def _neighbours(
    items: Sequence[T], size: Callable[[T], int], max_bytes: int
) -> Iterator[tuple[T, ...]]:
    """Yield groups of neighbours, each with at most ``max_bytes`` unless it is a single item."""
    group: list[T] = []
    weight = 0
    for item in items:
        if group and weight + size(item) > max_bytes:
            yield tuple(group)
            group, weight = [], 0
        group.append(item)
        weight += size(item)
    yield tuple(group)


def _evenly(files: Sequence[File], count: int) -> Iterator[tuple[File, ...]]:
    """Yield at most ``count`` groups of neighbours, of about the same size."""
    weights = [max(1, _file_size(file)) for file in files]
    middles = [end - weight / 2 for end, weight in zip(accumulate(weights), weights, strict=True)]
    total = sum(weights)
    groups = [int(middle * count / total) for middle in middles]
    for _, group in groupby(zip(groups, files, strict=True), itemgetter(0)):
        yield tuple(file for _, file in group)


def _size(partition: StagePartition) -> int:
    return partition.size_bytes


def _file_size(file: File) -> int:
    return sum(map(_size, file))
