"""A sample of keys is spread evenly over the rows, bounded, and the same every time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from mrflight.tasks.operators.key_sample import MIN_KEYS, KeySample

ROWS = 20_000
ROW_BYTES = 16


def batches(rows: int = ROWS, chunk: int = 700) -> Iterator[pa.RecordBatch]:
    table = pa.table({"k": np.arange(rows), "v": np.zeros(rows)})
    yield from table.to_batches(max_chunksize=chunk)


def sampled(step_rows: int, most_bytes: int = 2**30, chunk: int = 700) -> list[int]:
    sample = KeySample(["k"], step_rows * ROW_BYTES, most_bytes)
    passed = list(sample.observe(batches(chunk=chunk)))
    assert pa.Table.from_batches(passed) == pa.Table.from_batches(batches())
    assert sample.keys().column_names == ["k"]
    keys: list[int] = sample.keys()["k"].to_pylist()
    return keys


@pytest.mark.parametrize("chunk", [7, 700, ROWS])
def test_keys_are_spread_over_all_rows(chunk: int) -> None:
    keys = sampled(100, chunk=chunk)
    assert keys[0] == 0
    assert keys == sorted(set(keys))
    assert len(keys) == pytest.approx(ROWS / 100, rel=0.2)
    for quarter in range(4):
        of_quarter = [key for key in keys if key // (ROWS // 4) == quarter]
        assert len(of_quarter) == pytest.approx(ROWS / 400, rel=0.4)


def test_all_parts_of_a_cycle_are_sampled() -> None:
    parts = {key % 100 // 10 for key in sampled(100)}
    assert parts == set(range(10))


def test_the_same_rows_have_the_same_sample() -> None:
    assert sampled(50) == sampled(50)


def test_a_step_smaller_than_a_row_takes_all_rows() -> None:
    assert sampled(0) == list(range(ROWS))


@pytest.mark.parametrize("most_keys", [MIN_KEYS * 2, 1500, 5000])
def test_a_sample_that_is_too_large_keeps_every_other_key(most_keys: int) -> None:
    keys = sampled(2, most_bytes=most_keys * 8)
    assert most_keys * 0.4 < len(keys) <= most_keys
    assert keys[0] == 0
    assert np.median(keys) == pytest.approx(ROWS / 2, rel=0.2)


def test_a_few_keys_are_kept_however_large_they_are() -> None:
    assert MIN_KEYS <= len(sampled(10, most_bytes=1)) < 2 * MIN_KEYS


def test_large_rows_after_small_ones_are_sampled() -> None:
    small = pa.record_batch({"k": ["a"] * 5000})
    large = pa.record_batch({"k": ["b" * 5000] * 20})
    sample = KeySample(["k"], 5000, 2**30)
    for _ in sample.observe(iter([small, *[large] * 5])):
        pass
    lengths = [len(key) for key in sample.keys()["k"].to_pylist()]
    assert lengths[0] == 1
    assert lengths.count(5000) > 50
