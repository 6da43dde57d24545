"""Tests of which partitions are coalesced into a reduce task or part file, and which are split."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mrflight.errors import InconsistentMapOutputError
from mrflight.planner.reduce_tasks import (
    ReduceTaskPlan,
    check_slices,
    largest_first,
    plan_reduce_tasks,
    split_skewed,
)
from mrflight.shuffle.wire.partition_info import PartitionInfo
from mrflight.shuffle.wire.tickets import PartitionSlice
from mrflight.tasks.side_slice import SideSlice
from mrflight.tasks.stage_rows import StagePartition
from tests.support.suite.messages import refused

MIB = 2**20


def partitions(*sizes: int) -> list[StagePartition]:
    """Return partitions of these sizes, with a row for each byte."""
    infos = [PartitionInfo(p, ("here",), 1, size, size) for p, size in enumerate(sizes)]
    return [StagePartition(info.partition, (info,)) for info in infos]


def numbers(tasks: list[ReduceTaskPlan]) -> list[list[list[int]]]:
    return [[[info.partition for info in file] for file in task.files] for task in tasks]


def sliced(tasks: list[ReduceTaskPlan]) -> list[tuple[int, PartitionSlice | None]]:
    return [(task.partition.partition, task.partition_slice) for task in tasks]


def test_each_large_partition_is_a_task_and_the_largest_comes_first() -> None:
    tasks = plan_reduce_tasks(partitions(100 * MIB, 300 * MIB, 200 * MIB), 2, coalesces=False)
    assert numbers(tasks) == [[[1]], [[2]], [[0]]]


def test_many_small_neighbours_are_coalesced_into_tasks_but_not_into_files() -> None:
    tasks = plan_reduce_tasks(partitions(*[1000] * 64), 2, coalesces=False)
    assert sorted(numbers(tasks)) == [[[p], [p + 1]] for p in range(0, 64, 2)]


def test_each_of_a_few_small_partitions_is_a_task() -> None:
    tasks = plan_reduce_tasks(partitions(*[1000] * 32), 2, coalesces=False)
    assert sorted(numbers(tasks)) == [[[p]] for p in range(32)]


def test_small_neighbours_are_coalesced_into_files_if_the_plan_is_adaptive() -> None:
    tasks = plan_reduce_tasks(partitions(*[1000] * 8), 2, coalesces=True)
    assert numbers(tasks) == [[[0, 1, 2, 3, 4, 5, 6, 7]]]


def test_a_file_is_not_larger_than_a_workers_part() -> None:
    tasks = plan_reduce_tasks(partitions(*[8 * MIB] * 8), 4, coalesces=True)
    assert sorted(numbers(tasks)) == [[[0, 1]], [[2, 3]], [[4, 5]], [[6, 7]]]


def test_partitions_without_rows_are_left_out() -> None:
    tasks = plan_reduce_tasks(partitions(0, 40 * MIB, 0, 41 * MIB, 0), 2, coalesces=False)
    assert numbers(tasks) == [[[3]], [[1]]]


@pytest.mark.parametrize("coalesces", [True, False])
def test_without_any_rows_one_partition_is_reduced_for_its_schema(coalesces: bool) -> None:
    assert numbers(plan_reduce_tasks(partitions(0, 0, 0), 2, coalesces=coalesces)) == [[[0]]]


@given(
    st.lists(st.integers(0, 200 * MIB), min_size=1, max_size=60),
    st.integers(1, 64),
    st.booleans(),
)
def test_every_partition_with_rows_is_reduced_once_and_in_order(
    sizes: list[int], workers: int, coalesces: bool
) -> None:
    tasks = plan_reduce_tasks(partitions(*sizes), workers, coalesces=coalesces)
    flat = [[number for file in files for number in file] for files in numbers(tasks)]
    assert all(group == sorted(group) for group in flat)
    filled = [number for number, size in enumerate(sizes) if size] or [0]
    assert sorted(number for group in flat for number in group) == filled
    if not coalesces:
        assert all(len(file) == 1 for task in tasks for file in task.files)
    weights = [sum(sizes[number] for number in group) for group in flat]
    assert weights == sorted(weights, reverse=True)


def test_a_partition_with_half_of_all_rows_is_split() -> None:
    skewed = partitions(40 * MIB, 40 * MIB, 280 * MIB, 40 * MIB, 40 * MIB)
    assert sliced(split_skewed(skewed, 2)) == [(2, PartitionSlice(n, 5)) for n in range(5)]


def test_more_workers_make_more_slices_but_none_below_the_minimum() -> None:
    skewed = partitions(40 * MIB, 40 * MIB, 280 * MIB, 40 * MIB, 40 * MIB)
    assert len(split_skewed(skewed, 4)) == 10
    assert len(split_skewed(skewed, 64)) == 17  # each has at least 16 MiB
    assert len(split_skewed(skewed, 64, min_bytes=300 * MIB)) == 0


@pytest.mark.parametrize(
    ("sizes", "workers"),
    [
        ([100 * MIB] * 5, 64),
        ([400 * MIB], 8),
        ([0, 0, 400 * MIB, 0], 8),
        ([100 * MIB] * 19 + [190 * MIB], 8),
        ([10 * MIB] * 100 + [50 * MIB], 2),  # five times as large as the others, but soon read
        ([], 2),
        ([0, 0], 2),
    ],
)
def test_nothing_is_split_if_no_partition_is_skewed(sizes: list[int], workers: int) -> None:
    assert split_skewed(partitions(*sizes), workers) == []


def test_slices_are_ordered_by_their_size() -> None:
    skewed = partitions(100 * MIB, 200 * MIB, 2000 * MIB)
    tasks = largest_first(
        [*plan_reduce_tasks(skewed[:2], 2, coalesces=False), *split_skewed(skewed, 2)]
    )
    assert sliced(tasks) == [*((2, PartitionSlice(n, 6)) for n in range(6)), (1, None), (0, None)]
    assert [task.position for task in sorted(tasks, key=lambda task: task.position)] == [
        *((0, 0), (1, 0)),
        *((2, n) for n in range(6)),
    ]


def two_sided(*sizes: tuple[int, int]) -> list[StagePartition]:
    """Return partitions whose two sides have these sizes, with a row for each byte."""
    return [
        StagePartition(
            p, tuple(PartitionInfo(p, ("here",), 1, size, size, generation=1) for size in both)
        )
        for p, both in enumerate(sizes)
    ]


@pytest.mark.parametrize(
    ("skewed", "has_remainder", "side", "remainders"),
    [
        ((280 * MIB, MIB), {0: True, 1: True}, 0, 1),
        ((MIB, 280 * MIB), {0: True, 1: True}, 1, 1),
        ((280 * MIB, MIB), {0: False, 1: True}, 0, 0),
        ((MIB, 280 * MIB), {0: False, 1: True}, 1, 1),
        ((280 * MIB, 0), {0: True, 1: True}, 0, 0),  # the other side has no rows
    ],
)
def test_one_more_task_returns_the_outer_remainder_of_a_side(
    skewed: tuple[int, int], has_remainder: dict[int, bool], side: int, remainders: int
) -> None:
    partitions = two_sided(*[(10 * MIB, 10 * MIB)] * 4, skewed)
    tasks = split_skewed(partitions, 2, has_remainder)
    slices = len(tasks) - remainders
    assert slices == 6
    assert [task.side_slice for task in tasks] == [
        SideSlice(number, slices, side) for number in range(slices + remainders)
    ]
    assert [task.partition_slice for task in tasks] == [
        *(PartitionSlice(number, slices) for number in range(slices)),
        *[None] * remainders,
    ]
    assert [task.position for task in tasks] == [
        (4, number) for number in range(slices + remainders)
    ]
    if remainders:
        # It reads the whole partition, so it starts first.
        assert tasks[-1].size_bytes == sum(skewed)
        assert largest_first(tasks)[0] is tasks[-1]


def test_a_rewritten_partition_has_other_slices_and_the_same_remainder() -> None:
    partitions = two_sided(*[(10 * MIB, 10 * MIB)] * 4, (280 * MIB, MIB))
    skewed = partitions[4]
    rewritten = skewed._replace(infos=(replace(skewed.infos[0], generation=2), skewed.infos[1]))
    tasks = split_skewed(partitions, 2, {0: True, 1: True})
    now = [task.with_partitions({4: rewritten}) for task in tasks]
    changed = [after.has_other_slices(task) for after, task in zip(now, tasks, strict=True)]
    assert changed == [True] * (len(tasks) - 1) + [False]
    assert all(after.has_moved(task) for after, task in zip(now, tasks, strict=True))


def test_slices_without_all_rows_of_their_partition_are_an_error() -> None:
    one, two = (partition.infos[0] for partition in partitions(30, 40))
    check_slices([(one, 10), (two, 35), (one, 20), (two, 5)])
    with refused(InconsistentMapOutputError):
        check_slices([(one, 10), (two, 35), (one, 20), (two, 4)])


def test_slices_that_were_not_read_to_the_end_are_not_checked() -> None:
    one, two = (partition.infos[0] for partition in partitions(30, 40))
    check_slices([(one, 30), (two, None), (two, 5)])
    with refused(InconsistentMapOutputError):
        check_slices([(one, 29), (two, None), (two, 5)])
