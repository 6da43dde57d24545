"""Reductions of the same rows in little memory and in much."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from mrflight.config.aggregates import APPROXIMATIONS, FUNCTIONS, Aggregate
from mrflight.tasks.reducer import ReduceSpec
from mrflight.tasks.task_memory import TaskMemory

LITTLE, MUCH = 64 * 2**10, 2**30
ROWS = 3000


def every(column: str = "v") -> tuple[Aggregate, ...]:
    """Every aggregate of a number whose result is exact, but for rounding."""
    others = (*APPROXIMATIONS, "bool_and", "bool_or")
    return tuple(
        Aggregate(function, function, column)  # type: ignore[arg-type]
        for function in FUNCTIONS
        if function not in others
    )


COMBINABLE = tuple(each for each in every() if not each.needs_all_rows)
DISTINCT = (Aggregate("n", "count_distinct", "v"),)


def table_of(distinct: int, rows: int = ROWS, values: int = 300) -> pa.Table:
    """Keys of which so many differ, values with nulls, and the number of the row."""
    random = np.random.default_rng(1)
    numbers = random.integers(0, values, rows)
    return pa.table(
        {
            "k": [f"key {key}" for key in random.integers(0, distinct, rows)],
            "v": pa.array(numbers, mask=numbers == 0),
            "text": [f"text {number % 70}" for number in numbers],
            "row": np.arange(rows),
        }
    )


def reduce(
    reduce_spec: ReduceSpec, table: pa.Table, memory_bytes: int, folder: Path, rows: int = 200
) -> pa.Table:
    batches = iter(table.to_batches(max_chunksize=rows))
    task_memory = TaskMemory(memory_bytes, folder)
    schema, results = reduce_spec.apply(3, table.schema, batches, task_memory)
    return pa.Table.from_batches(results, schema)


def by_key(result: pa.Table) -> pa.Table:
    assert len(result["k"].unique()) == len(result)
    return result.sort_by("k").combine_chunks()


def assert_same_groups(result: pa.Table, wanted: pa.Table) -> None:
    """Assert that results have equal rows in any order. Floats may be rounded differently."""
    assert result.schema == wanted.schema
    found, wanted = by_key(result), by_key(wanted)
    for name in wanted.column_names:
        if pa.types.is_floating(wanted[name].type):
            assert found[name].to_pylist() == pytest.approx(wanted[name].to_pylist(), rel=1e-12)
        else:
            assert found[name] == wanted[name], name
