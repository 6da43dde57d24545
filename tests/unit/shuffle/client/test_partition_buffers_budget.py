"""Both kinds of buffers keep their budget and still give large blocks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mrflight.shuffle.client.partition_buffers import SlicedBuffers
from tests.support.clusters.buffered_rows import integers, make, placed
from tests.support.commands.own_process import in_own_process
from tests.support.suite.messages import refused

KIB = 2**10


def test_a_partition_is_due_when_it_makes_a_block(form: str) -> None:
    buffers = make(form, integers(0).schema, 4, block_bytes=800)
    assert list(buffers.add(integers(99), placed(*[2] * 99))) == []
    ((partition, rows),) = buffers.add(integers(3), placed(2, 1, 1))
    assert (partition, rows.num_rows) == (2, 100)
    assert [(p, rows.num_rows) for p, rows in buffers.take_all()] == [(1, 2)]


def test_over_the_budget_the_largest_are_due_until_half_is_free(form: str) -> None:
    counts = [100, 400, 100, 300, 90]
    ids = np.repeat(np.arange(5, dtype=np.int32), counts)
    buffers = make(form, integers(0).schema, 5, budget_bytes=7600)
    due: list[tuple[int, int]] = []
    for start in range(0, 990, 90):  # in no order, so that all grow
        rows = np.random.default_rng(3).permutation(990)[start : start + 90]
        batch = pa.record_batch({"n": pa.array(rows)})
        due += [(p, rows.num_rows) for p, rows in buffers.add(batch, pa.array(ids[rows]))]
        assert buffers.held_bytes <= 7600
    assert due[0][0] == 1
    assert {partition for partition, _ in due} <= {1, 3}
    left = {partition: rows.num_rows for partition, rows in buffers.take_all()}
    assert [left[partition] for partition in (0, 2, 4)] == [100, 100, 90]


def test_a_partition_with_most_rows_does_not_flush_the_others(form: str) -> None:
    random = np.random.default_rng(5)
    buffers = make(form, integers(0).schema, 200, block_bytes=64 * KIB, budget_bytes=512 * KIB)
    small, sent = 0, []
    for _ in range(40):
        ids = np.where(random.random(8192) < 0.97, 0, random.integers(1, 200, 8192))
        small += int((ids > 0).sum())
        batch = pa.record_batch({"n": pa.array(ids)})
        sent += [p for p, _ in buffers.add(batch, pa.array(ids, pa.int32()))]
    assert sent == [0] * 20  # with every second batch, that is of 62 KiB for it
    assert sum(rows.num_rows for p, rows in buffers.take_all() if p) == small


def test_blocks_of_many_partitions_are_as_large_as_the_budget_allows(form: str) -> None:
    partitions, budget = 2000, 2 * 2**20
    random = np.random.default_rng(5)
    buffers = make(form, integers(0).schema, partitions, budget_bytes=budget)
    sizes: list[int] = []
    for _ in range(30):
        ids = pa.array(random.integers(0, partitions, 2**15, np.int32))
        batch = pa.record_batch({"n": ids.cast(pa.int64())})
        sizes += [rows.nbytes for _, rows in buffers.add(batch, ids)]
    # A third of the held bytes may be room to grow.
    assert np.mean(sizes) > budget / partitions * 2 / 3


def test_slices_free_the_memory_of_taken_rows() -> None:
    in_own_process(add_and_take)


def add_and_take() -> None:
    batch, ids = integers(2**14), placed(*[0] * (2**14 - 1), 1)
    before = pa.total_allocated_bytes()
    buffers = SlicedBuffers(2, 2**17 - 8, 4 * 2**17)
    for _ in range(20):
        for partition, rows in buffers.add(batch, ids):
            assert (partition, rows.num_rows) == (0, 2**14 - 1)
            del rows
        assert pa.total_allocated_bytes() - before <= 5 * 2**17
    assert [(p, rows.num_rows) for p, rows in buffers.take_all()] == [(1, 20)]


def test_a_row_above_the_budget_is_sent_alone(form: str) -> None:
    strings = pa.array(["a", "b" * 5000, "c"])
    batch = pa.record_batch({"s": strings})
    buffers = make(form, batch.schema, 2, budget_bytes=1000)
    blocks = [*buffers.add(batch, placed(0, 0, 0)), *buffers.take_all()]
    assert blocks[0][1].column(0).to_pylist() == ["a"]
    assert blocks[1][1].column(0).to_pylist() == ["b" * 5000]
    assert blocks[2][1].column(0).to_pylist() == ["c"]


@pytest.mark.parametrize("budget_bytes", [0, 2**30 + 1])
def test_impossible_budgets_are_refused(form: str, budget_bytes: int) -> None:
    with refused(ValueError):
        make(form, integers(0).schema, 2, budget_bytes=budget_bytes)
