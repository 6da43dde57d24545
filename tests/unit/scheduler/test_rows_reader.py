"""Tests of where the reading of a result goes on after a loss."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.scheduler.rows_reader import rows_after
from tests.support.suite.examples import some_of


@settings(max_examples=some_of(50), derandomize=True, deadline=None)
@given(st.lists(st.integers(0, 4)), st.integers(0, 20))
def test_each_row_after_those_that_were_given_comes_once(sizes: list[int], given: int) -> None:
    table = pa.table({"n": range(sum(sizes))})
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    blocks = [
        pa.RecordBatch.from_pydict(
            {"n": table["n"].to_pylist()[start : start + size]}, table.schema
        )
        for start, size in zip(starts, sizes, strict=True)
    ]
    left = list(rows_after(given, blocks))
    assert [n for batch in left for n in batch["n"].to_pylist()] == list(range(given, sum(sizes)))
    assert all(batch.num_rows for batch in left)
