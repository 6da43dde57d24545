"""A user's function gets all rows of each key, however little memory there is."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from mrflight.compute import kernel
from mrflight.config.functions import FunctionRef
from mrflight.errors import UserFunctionError
from mrflight.tasks.reducer import ReduceSpec
from mrflight.tasks.task_memory import TaskMemory
from tests.support.queries.reductions import LITTLE, MUCH, ROWS, by_key, reduce, table_of
from tests.support.suite.messages import refused


def sizes(table: pa.Table) -> pa.Table:
    """Return the keys of a table with the numbers of their rows."""
    counted = table.group_by("k").aggregate([([], "count_all")])
    return pa.table(
        {"k": counted["k"], "rows": counted["count_all"], "of": [len(table)] * len(counted)}
    )


def types_by_row(table: pa.Table) -> pa.Table:
    """Return a table whose type depends on the keys."""
    return pa.table({"k": table["k"] if "key 0" in table["k"].to_pylist() else [1] * len(table)})


def function_of(name: str) -> FunctionRef:
    """Return a reference to a function of this module, as in a job file in the same folder."""
    module = Path(__file__)
    return FunctionRef("reduce.function", module.stem, name, str(module.parent))


def test_functions_get_all_rows_of_a_key(folder: Path) -> None:
    table = table_of(300)
    function = function_of("sizes")
    wanted = reduce(ReduceSpec(function=function, key=("k",)), table, MUCH, folder)
    result = reduce(ReduceSpec(function=function, key=("k",)), table, LITTLE, folder)
    assert by_key(result.select(["k", "rows"])) == by_key(wanted.select(["k", "rows"]))
    assert set(wanted["of"].to_pylist()) == {ROWS}
    assert max(result["of"].to_pylist()) < ROWS / 4


@pytest.mark.parametrize(("key", "distinct"), [((), 300), (("k",), 1)])
def test_functions_get_all_rows_if_these_cannot_be_partitioned(
    key: tuple[str, ...], distinct: int, folder: Path
) -> None:
    function = function_of("sizes")
    result = reduce(ReduceSpec(function=function, key=key), table_of(distinct), LITTLE, folder)
    assert set(result["of"].to_pylist()) == {ROWS}


def test_large_keys_with_similar_hashes_are_separated(folder: Path) -> None:
    hashes = kernel.hash_rows([pa.array(range(2000))]).to_pylist()
    alike = [key for key, hash_ in enumerate(hashes) if hash_ % 16 == 5][:40]
    keys = [key for key in alike for _ in range(1000)]
    table = pa.table({"k": keys, "v": range(len(keys))})
    reduce_spec = ReduceSpec(function=function_of("sizes"), key=("k",))
    task_memory = TaskMemory(384_000, folder)
    _, results = reduce_spec.apply(0, table.schema, iter(table.to_batches(500)), task_memory)
    result = pa.Table.from_batches(results)
    assert sorted(result["k"].to_pylist()) == alike
    assert set(result["rows"].to_pylist()) == {1000}
    assert max(result["of"].to_pylist()) * 16 <= task_memory.rows_bytes


def test_results_with_different_schemas_are_refused(folder: Path) -> None:
    function = function_of("types_by_row")
    reduce_spec = ReduceSpec(function=function, key=("k",))
    with refused(UserFunctionError):
        reduce(reduce_spec, table_of(300), LITTLE, folder)
