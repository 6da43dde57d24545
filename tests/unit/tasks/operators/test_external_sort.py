"""Rows with all kinds of keys are sorted in little memory, with few files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from mrflight.compute.sorting import sort_indices
from mrflight.config.sort_key import ascending
from mrflight.system.scratch import ScratchFolder
from mrflight.tasks.operators.external_sort import MAX_RANGES, ExternalSort
from mrflight.tasks.operators.spill_partitions import GracePartitioner, SpillPartition

ROWS = 40_000
RANDOM = np.random.default_rng(1)


class Recorder:
    """Records the spill partitions that a sort writes, by the partitioner, and the sorted bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.partitions: dict[str, list[SpillPartition]] = {}
        self.sorted_bytes: list[int] = []
        finish, sort = GracePartitioner.finish, ExternalSort._sort

        def finished(writer: GracePartitioner) -> list[SpillPartition]:
            partitions = finish(writer)
            self.partitions[writer._name] = [
                partition for partition in partitions if partition.rows
            ]
            return partitions

        def is_sorted(sorter: ExternalSort, table: pa.Table) -> pa.Table:
            self.sorted_bytes.append(table.nbytes)
            return sort(sorter, table)

        monkeypatch.setattr(GracePartitioner, "finish", finished)
        monkeypatch.setattr(ExternalSort, "_sort", is_sorted)

    @property
    def files(self) -> list[int]:
        """Return how many partitions each partitioner has written, in the order of these."""
        return [len(partitions) for partitions in self.partitions.values()]

    @property
    def levels(self) -> int:
        """Return how often a row has been written at most."""
        return 1 + max(name.count("-") + 1 for name in self.partitions if name != "unsorted")


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return Recorder(monkeypatch)


def table_of(keys: object) -> pa.Table:
    column = keys if isinstance(keys, pa.Array) else pa.array(keys)
    return pa.table({"k": column, "row": np.arange(len(column))})


def assert_sorted(table: pa.Table, rows_bytes: int, folder: Path) -> None:
    """Sort with this much memory, and compare the rows with a sort of all rows at once."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield from table.to_batches(max_chunksize=500)

    with ScratchFolder("sort", folder) as scratch:
        tables = list(ExternalSort(ascending("k"), rows_bytes, scratch).results(batches()))
        left = list(scratch.root.rglob("*.arrows"))
    wanted = table.take(sort_indices(table, ascending("k")))
    assert pa.concat_tables(tables)["row"] == wanted["row"]
    assert left == []


ONE_KEY = {
    "one number": np.ones(ROWS, np.int64),
    "one text": pa.array(["the same"] * ROWS),
    "nulls": pa.nulls(ROWS, pa.int64()),
    "nulls of texts": pa.nulls(ROWS, pa.string()),
    "NaNs": pa.array(np.full(ROWS, np.nan)),
    "zeros of both signs": np.where(np.arange(ROWS) % 2, 0.0, -0.0),
}


@pytest.mark.parametrize("keys", ONE_KEY)
@pytest.mark.parametrize("fraction", [3, 300])
def test_one_key_is_written_once_and_not_sorted(
    keys: str, fraction: int, recorder: Recorder, tmp_path: Path
) -> None:
    table = table_of(ONE_KEY[keys])
    assert_sorted(table, table.nbytes // fraction, tmp_path)
    assert (recorder.files, recorder.sorted_bytes) == ([1], [])


@pytest.mark.parametrize("other", [0, 2, None])
def test_a_key_that_the_sample_misses_is_sorted(
    other: int | None, recorder: Recorder, tmp_path: Path
) -> None:
    keys: list[int | None] = [1] * ROWS
    keys[ROWS - 7] = other
    table = table_of(keys)
    assert_sorted(table, table.nbytes // 3, tmp_path)
    assert recorder.files == [1, 2]


MANY_OF_FEW = "that fill four ranges each"
FEW_KEYS = {
    "two": (RANDOM.integers(0, 2, ROWS), 2),
    "one that is rare": (np.arange(ROWS) % 50 == 0, 2),
    "a number and nulls": (pa.array(np.ones(ROWS), mask=np.arange(ROWS) % 3 == 0), 2),
    "NaNs and nulls": (pa.array(np.full(ROWS, np.nan), mask=np.arange(ROWS) % 3 == 0), 2),
    "three": (pa.array([f"key {key}" for key in RANDOM.integers(0, 3, ROWS)]), 3),
    "in runs": (np.arange(ROWS) // (ROWS // 5), 5),
    MANY_OF_FEW: (np.arange(ROWS) % (MAX_RANGES // 4), MAX_RANGES // 4),
}


@pytest.mark.slow_but("two", "three")
@pytest.mark.parametrize(
    "keys",
    [
        *(keys for keys in FEW_KEYS if keys != MANY_OF_FEW),
        pytest.param(MANY_OF_FEW, marks=pytest.mark.slow),
    ],
)
def test_each_of_few_keys_has_a_file_and_is_not_sorted(
    keys: str, recorder: Recorder, tmp_path: Path
) -> None:
    column, distinct = FEW_KEYS[keys]
    table = table_of(column)
    assert_sorted(table, table.nbytes // 300, tmp_path)
    assert recorder.files == [1, distinct]
    assert sum(recorder.sorted_bytes) <= table.nbytes // 50  # a rare one may be


MANY_KEYS = {
    "that come once": RANDOM.permutation(ROWS),
    "texts that come once": pa.array([f"key {key}" for key in RANDOM.permutation(ROWS)]),
    "in their order": np.arange(ROWS),
    "backwards": -np.arange(ROWS),
    "in cycles": np.arange(ROWS) % 1000,
    "half of them null": pa.array(RANDOM.permutation(ROWS), mask=RANDOM.random(ROWS) < 0.5),
    "some of them frequent": np.minimum(RANDOM.zipf(1.3, ROWS), 10**9),
    "a hundred": RANDOM.integers(0, 100, ROWS),
}


CUT_ONCE = [(keys, 30, 2) for keys in MANY_KEYS]
CUT_TWICE = [
    pytest.param(keys, 200, 3, marks=pytest.mark.slow)
    for keys in ("that come once", "half of them null", "a hundred")
]


@pytest.mark.slow_but("backwards-30-2", "in their order-30-2")
@pytest.mark.parametrize(("keys", "fraction", "levels"), [*CUT_ONCE, *CUT_TWICE])
def test_many_keys_take_no_more_levels_than_needed(
    keys: str, fraction: int, levels: int, recorder: Recorder, tmp_path: Path
) -> None:
    """With 64 ranges of half the memory, 30 times the memory is cut once."""
    table = table_of(MANY_KEYS[keys])
    assert_sorted(table, table.nbytes // fraction, tmp_path)
    assert recorder.levels == levels
    assert max(recorder.files) <= MAX_RANGES
    assert max(recorder.sorted_bytes, default=0) <= table.nbytes // fraction


@pytest.mark.parametrize("keys", [["b"], ["b", "a"], ["b", "b"], ["c", "a", "b"], [None, "a"]])
def test_rows_larger_than_the_memory(keys: list[str | None], tmp_path: Path) -> None:
    table = table_of(pa.array([key and key * 10_000 for key in keys]))
    assert_sorted(table, 1000, tmp_path)


def test_small_rows_before_large_ones(recorder: Recorder, tmp_path: Path) -> None:
    """A sample by number of rows would miss the large rows."""
    keys = [f"{key:05d}" for key in range(30_000)] + [f"{key:05d}" * 80 for key in range(3000)]
    table = table_of(keys)
    assert_sorted(table, table.nbytes // 20, tmp_path)
    assert recorder.levels == 2
    assert max(recorder.sorted_bytes) <= table.nbytes // 20


def test_no_rows(tmp_path: Path) -> None:
    with ScratchFolder("sort", tmp_path) as scratch:
        assert list(ExternalSort(ascending("k"), 1000, scratch).results(iter([]))) == []
