"""The plan of a compaction: the files of a table that become one file."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from mrflight.sinks.delta.compaction_plan import plan_bins
from mrflight.sources.delta_source import ActiveFile

NAN = float("nan")


def file_of(path: str, size_bytes: int, time: int = 0, value: object = None) -> ActiveFile:
    return ActiveFile(path, size_bytes, time, None, (("p", value),))


@pytest.mark.parametrize(
    ("sizes", "bins"),
    [
        ([], []),
        ([1], []),
        ([100, 100], []),
        ([60, 60, 60], []),
        ([50, 50, 50], [[0, 1]]),
        ([10, 500, 10, 10], [[2, 3]]),
        ([40, 40, 40, 40, 40], [[0, 1], [2, 3]]),
        ([0, 0, 101], [[0, 1]]),
    ],
)
def test_neighbours_are_grouped_up_to_the_target_size(
    sizes: list[int], bins: list[list[int]]
) -> None:
    files = [file_of(f"part-{i:05}", size) for i, size in enumerate(sizes)]
    found = [[files.index(file) for file in bin.files] for bin in plan_bins(files, 100)]
    assert found == bins


def names(files: Iterable[ActiveFile]) -> list[str]:
    return [file.path for file in files]


def test_files_of_a_bin_have_one_partition_value_and_the_order_of_their_commits() -> None:
    files = [
        file_of("b", 1, 2, NAN),
        file_of("a", 1, 2, NAN),
        file_of("z", 1, 1, NAN),
        file_of("c", 1, 1, None),
        file_of("d", 1, 1, 0.5),
    ]
    (bin,) = plan_bins(files, 100)
    assert names(bin.files) == ["z", "a", "b"]
