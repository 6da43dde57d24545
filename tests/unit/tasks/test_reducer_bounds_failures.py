"""A reduce that fails while rows are spilled leaves no local files."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from mrflight.config.sort_key import ascending
from mrflight.errors import JobFailedError
from mrflight.tasks.reducer import ReduceSpec
from mrflight.tasks.task_memory import TaskMemory
from tests.support.faults.full_disk import largest_file
from tests.support.queries.reductions import COMBINABLE, DISTINCT, LITTLE, ROWS, reduce, table_of


@pytest.mark.parametrize(
    "reduce_spec",
    [
        ReduceSpec(("k",), COMBINABLE),
        ReduceSpec(("k",), DISTINCT),
        ReduceSpec(sort_by=ascending(["row"])),
        ReduceSpec(("k",), COMBINABLE, sort_by=ascending("k")),
    ],
    ids=["merged", "whole", "sorted", "sorted groups"],
)
class TestFailuresWhileSpilling:
    """Each kind of reduce that spills removes its files."""

    def test_an_error_while_rows_are_read(self, reduce_spec: ReduceSpec, folder: Path) -> None:
        table = table_of(10**9)

        def rows() -> Iterator[pa.RecordBatch]:
            yield from table.slice(0, ROWS - 100).to_batches(max_chunksize=100)
            assert list(folder.iterdir()) != []
            raise ConnectionResetError("the server is gone")

        with pytest.raises(ConnectionResetError):
            reduce_spec.apply(0, table.schema, rows(), TaskMemory(LITTLE, folder))

    @pytest.mark.slow
    def test_results_that_are_closed_early(self, reduce_spec: ReduceSpec, folder: Path) -> None:
        table = table_of(10**9)
        batches = iter(table.to_batches(max_chunksize=100))
        _, results = reduce_spec.apply(0, table.schema, batches, TaskMemory(LITTLE, folder))
        assert next(results).num_rows
        assert list(folder.iterdir()) != []
        results.close()  # type: ignore[attr-defined]
        assert list(folder.iterdir()) == []

    def test_a_full_disk(self, reduce_spec: ReduceSpec, folder: Path) -> None:
        with largest_file(4000), pytest.raises(JobFailedError, match=str(folder)) as failed:
            reduce(reduce_spec, table_of(10**9), LITTLE, folder)
        assert isinstance(failed.value.__cause__, OSError)
        assert failed.value.__cause__.errno in (None, errno.EFBIG)
