"""Which partitions a reduce task takes, by the sizes that the maps have made: pure functions.

A task per partition is too many where they are small, as each costs some
milliseconds, and one is too few where a partition is as large as all others
together. So neighbours share a task up to a size that leaves every worker
several tasks, the largest first, so that the last to end are short; and one
that would keep a worker busy when the others are done is cut into shares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from operator import itemgetter
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from mrflight.errors import InconsistentMapOutputError
from mrflight.shuffle.wire.partition_info import PartitionInfo
from mrflight.shuffle.wire.tickets import PartitionSlice
from mrflight.tasks.portion import Portion
from mrflight.tasks.stage_rows import StagePartition

_TASKS_PER_WORKER = 16
"""With so many, partitions need not share tasks."""

_MOST_SHARED_BYTES = 8 * 2**20
"""Of partitions that share a task: a larger one takes so long that the task does not count."""

_FILES_PER_TASK = 12
"""Where closing one takes time: as a task closes them beside what it writes, it waits once, for
half a second on HDFS, in which it would write three."""

_MOST_TASKS_PER_WORKER = 4
"""Of so many files each, or more."""

_SHARES_PER_WORKER = 4
"""That a worker's part of all rows would make."""

_LEAST_FILE_BYTES = 2**20
_MOST_FILE_BYTES = 32 * 2**20
"""Of shuffled rows, as they are sent, that go into one part file where the number of partitions is
ours to choose. Few files are hard to deal out evenly: seven to two workers are four and three."""

_LEAST_SHARE_BYTES = 16 * 2**20
"""Of a partition's share: a task of its own takes some milliseconds, and leaves a file."""

ONLY_SIDE: Mapping[int, bool] = MappingProxyType({0: False})
"""What can be shared of a stage of one side: shares of that leave nothing out."""

File = tuple[StagePartition, ...]
"""The neighbouring partitions that go into one part file."""

T = TypeVar("T")


class ReduceTaskPlan(NamedTuple):
    """What one task reduces."""

    files: tuple[File, ...]
    portion: Portion | None = None
    """Of the one partition, where several tasks share it."""

    @property
    def partition(self) -> StagePartition:
        """The first, or only one."""
        return self.files[0][0]

    @property
    def partitions(self) -> list[StagePartition]:
        """All partitions of all files."""
        return [partition for file in self.files for partition in file]

    @property
    def share(self) -> PartitionSlice | None:
        """None where it reads its partitions whole."""
        return self.portion.share if self.portion else None

    @property
    def shared(self) -> PartitionInfo:
        """What the share is of."""
        assert self.portion is not None, self
        return self.partition.infos[self.portion.side]

    def as_in(self, partitions: Mapping[int, StagePartition]) -> ReduceTaskPlan:
        """The same, with other knowledge of its partitions, by their numbers."""
        files = tuple(tuple(partitions[each.partition] for each in file) for file in self.files)
        return ReduceTaskPlan(files, self.portion)

    def is_away_from(self, placements: Sequence[Sequence[tuple[str, ...]]]) -> bool:
        """Whether a partition is not where it was, by the locations of all, side after side."""
        return any(
            placement[info.partition] != info.locations
            for each in self.partitions
            for placement, info in zip(placements, each.infos, strict=True)
        )

    def is_elsewhere(self, before: ReduceTaskPlan) -> bool:
        """Whether a partition has moved, or was written again, since ``before``."""
        return any(
            (now.locations, now.generation) != (then.locations, then.generation)
            for each, other in zip(self.partitions, before.partitions, strict=True)
            for now, then in zip(each.infos, other.infos, strict=True)
        )

    def is_cut_anew(self, before: ReduceTaskPlan) -> bool:
        """Whether the share has other rows: the partition was written again, in other blocks."""
        return self.share is not None and any(
            now.generation != then.generation
            for now, then in zip(self.partition.infos, before.partition.infos, strict=True)
        )

    @property
    def place(self) -> tuple[int, int]:
        """Where its results come among those of all tasks."""
        return self.partition.partition, self.portion.number if self.portion else 0

    @property
    def size_bytes(self) -> int:
        return sum(map(_file_size, self.files)) // (self.share.of if self.share else 1)


def plan_reduce_tasks(
    partitions: Sequence[StagePartition],
    workers: int,
    *,
    is_merged: bool,
    closes_late: bool = False,
) -> list[ReduceTaskPlan]:
    """The tasks, the largest first: of each its part files, of each file its partitions.

    Partitions without rows are left out, unless none has any: one is reduced for
    the result's schema. ``is_merged``: neighbours may share a part file as well. ``closes_late``:
    a task has several part files, as the last is waited for until its store has it.
    """
    filled = [each for each in partitions if each.rows] or list(partitions[:1])
    total = sum(map(_size, filled))
    file_bytes = min(max(total // workers, _LEAST_FILE_BYTES), _MOST_FILE_BYTES)
    files = list(_neighbours(filled, _size, file_bytes)) if is_merged else [(p,) for p in filled]
    if closes_late:
        rounds = min(max(1, len(files) // (workers * _FILES_PER_TASK)), _MOST_TASKS_PER_WORKER)
        return largest_first(map(ReduceTaskPlan, _evenly(files, workers * rounds)))
    most_tasks = workers * _TASKS_PER_WORKER
    task_bytes = min(total // most_tasks, _MOST_SHARED_BYTES) if len(files) > most_tasks else 0
    tasks = [ReduceTaskPlan(files) for files in _neighbours(files, _file_size, task_bytes)]
    return largest_first(tasks)


def largest_first(tasks: Iterable[ReduceTaskPlan]) -> list[ReduceTaskPlan]:
    """So that the last to end are short."""
    return sorted(tasks, key=lambda task: task.size_bytes, reverse=True)


def split_skewed(
    partitions: Sequence[StagePartition],
    workers: int,
    sides: Mapping[int, bool] = ONLY_SIDE,
    least_bytes: int = _LEAST_SHARE_BYTES,
) -> list[ReduceTaskPlan]:
    """The portions of partitions that are heavy: whose worker would be the last to be done.

    That are those of at least half of a worker's part of all rows, which at the same time are
    twice as large as partitions are on average. What is shared is the largest of the ``sides``
    that can be, where it is at least half of the partition. No share is smaller than
    ``least_bytes``. Of a side whose shares leave a rest, as ``sides`` say, that is a task as well,
    unless the other sides have no rows.
    """
    filled = [each for each in partitions if each.rows]
    total = sum(map(_size, filled))
    planned = []
    for each in filled:
        is_heavy = each.size_bytes > 2 * total / len(filled)
        if not (is_heavy and each.size_bytes >= total / (2 * workers)):
            continue
        side = max(sides, key=lambda number: each.infos[number].size_bytes)
        side_bytes = each.infos[side].size_bytes
        share_bytes = max(total / (workers * _SHARES_PER_WORKER), least_bytes)
        count = int(side_bytes // share_bytes)
        if count > 1 and 2 * side_bytes >= each.size_bytes:
            has_rest = sides[side] and each.rows > each.infos[side].rows
            portions = (Portion(number, count, side) for number in range(count + has_rest))
            planned += [ReduceTaskPlan(((each,),), portion) for portion in portions]
    return planned


def check_shares(read: Iterable[tuple[PartitionInfo, int | None]]) -> None:
    """Look that shares are their partitions, by the rows that were read of each.

    None is of a share that was not read to its end, as no more of its rows were wanted: nothing is
    known of its partition then. InconsistentMapOutputError where rows are missing, which no
    attempt alone could see.
    """
    infos: dict[int, PartitionInfo] = {}
    found: Counter[int] = Counter()
    left: set[int] = set()
    for info, rows in read:
        infos[info.partition] = info
        if rows is None:
            left.add(info.partition)
        else:
            found[info.partition] += rows
    for number, info in infos.items():
        if number not in left and (rows := found[number]) != info.rows:
            raise InconsistentMapOutputError(
                f"partition {number}: {info.locations[0]} gave {rows} rows in shares, of the "
                f"{info.rows} that were committed"
            )


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


def _evenly(files: Sequence[File], count: int) -> Iterator[tuple[File, ...]]:
    """Neighbours in at most ``count`` groups of about the same weight."""
    weights = [max(1, _file_size(file)) for file in files]
    middles = [end - weight / 2 for end, weight in zip(accumulate(weights), weights, strict=True)]
    total = sum(weights)
    places = [int(middle * count / total) for middle in middles]
    for _, group in groupby(zip(places, files, strict=True), itemgetter(0)):
        yield tuple(file for _, file in group)


def _size(partition: StagePartition) -> int:
    return partition.size_bytes


def _file_size(file: File) -> int:
    return sum(map(_size, file))
