"""A row buffer counts its rows and bytes, and fills up to a limit."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from mrflight.tasks.operators.spill_partitions import RowBuffer

BATCH = pa.record_batch({"k": pa.array(range(10), pa.int64())})  # of 80 bytes


@pytest.mark.parametrize(
    ("most_bytes", "taken", "passes"),
    [(0, 1, True), (79, 1, True), (80, 2, True), (399, 5, True), (400, 5, False)],
)
def test_fill_stops_past_the_limit(most_bytes: int, taken: int, passes: bool) -> None:
    held, rows = RowBuffer(), iter([BATCH] * 5)
    assert held.fill(rows, most_bytes) is passes
    assert (held.rows, held.bytes) == (taken * 10, taken * 80)
    assert len(list(rows)) == 5 - taken


def test_without_a_limit_all_batches_are_taken() -> None:
    held = RowBuffer()
    assert held.fill(iter([BATCH] * 5), math.inf) is False
    assert held.pop() == pa.Table.from_batches([BATCH] * 5)
    assert (held.rows, held.bytes) == (0, 0)


def test_rows_held_before_count() -> None:
    held, rows = RowBuffer(), iter([BATCH] * 2)
    held.append(pa.Table.from_batches([BATCH] * 3))
    assert held.fill(rows, 300) is True
    assert len(list(rows)) == 1
    assert held.fill(rows, 300) is False
    assert held.rows == 40


def test_an_empty_buffer_is_a_table_without_columns() -> None:
    held = RowBuffer()
    assert held.fill(iter([]), 0) is False
    assert held.pop().num_columns == 0
