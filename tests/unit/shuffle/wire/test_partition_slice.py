"""Slices of a partition: every block is in one of them, and they have about the same size."""

from __future__ import annotations

from itertools import compress

from hypothesis import given
from hypothesis import strategies as st

from mrflight.shuffle.wire.tickets import PartitionSlice, in_slice


def slices(sizes: list[int], of: int) -> list[list[int]]:
    blocks = range(len(sizes))
    return [
        list(compress(blocks, in_slice(sizes, sum(sizes), PartitionSlice(n, of))))
        for n in range(of)
    ]


@given(st.lists(st.integers(0, 1000), max_size=50), st.integers(1, 70))
def test_slices_are_runs_of_blocks_that_make_up_the_partition(sizes: list[int], of: int) -> None:
    found = slices(sizes, of)
    assert [block for share in found for block in share] == list(range(len(sizes)))


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=50), st.integers(1, 70))
def test_slices_differ_from_an_equal_part_by_less_than_a_block(sizes: list[int], of: int) -> None:
    for share in slices(sizes, of):
        weight = sum(sizes[block] for block in share)
        assert abs(weight - sum(sizes) / of) <= max(sizes)


def test_blocks_without_bytes_are_in_the_first_slice() -> None:
    assert slices([0, 0, 0], 3) == [[0, 1, 2], [], []]
