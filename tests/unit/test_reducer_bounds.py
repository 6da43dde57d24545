"""A reduction in little memory, through local files, comes to what it does in much."""

from __future__ import annotations

import errno
import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight import kernel
from mrflight.aggregates import FUNCTIONS, Aggregate
from mrflight.errors import JobError, JobFailedError, UserFunctionError
from mrflight.functions import FunctionRef
from mrflight.shuffle.partitioners import sort_indices
from mrflight.workers.combiner import Combiner
from mrflight.workers.external_sort import ExternalSort
from mrflight.workers.pieces import PieceWriter
from mrflight.workers.reducer import Reduction
from mrflight.workers.workspace import Workspace
from tests.support.full_disk import largest_file

LITTLE, MUCH = 64 * 2**10, 2**30
ROWS = 3000

examples = settings(max_examples=40, derandomize=True)


def every(column: str = "v") -> tuple[Aggregate, ...]:
    return tuple(Aggregate(function, function, column) for function in FUNCTIONS)  # type: ignore[arg-type]


COMBINABLE = tuple(each for each in every() if each.function != "count_distinct")
DISTINCT = (Aggregate("n", "count_distinct", "v"),)
SEVERAL_DISTINCT = (*every(), Aggregate("texts", "count_distinct", "text"))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where reductions work: empty at the end, whatever has happened."""
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def cuts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what was cut into local files."""
    names: list[str] = []
    make = PieceWriter.__init__

    def noted(self: PieceWriter, scratch: Any, name: str, *rest: Any) -> None:
        names.append(name)
        make(self, scratch, name, *rest)

    monkeypatch.setattr(PieceWriter, "__init__", noted)
    return names


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
    reduction: Reduction, table: pa.Table, memory_bytes: int, folder: Path, rows: int = 200
) -> pa.Table:
    batches = iter(table.to_batches(max_chunksize=rows))
    space = Workspace(memory_bytes, folder)
    schema, results = reduction.apply(3, table.schema, batches, space)
    return pa.Table.from_batches(results, schema)


def by_key(result: pa.Table) -> pa.Table:
    assert len(result["k"].unique()) == len(result)
    return result.sort_by("k").combine_chunks()


# Groups


@pytest.mark.parametrize("distinct", [1, 20, 1000, 10**9])
@pytest.mark.parametrize(
    "aggregates", [(), COMBINABLE, DISTINCT, SEVERAL_DISTINCT], ids=lambda each: str(len(each))
)
def test_groups_are_the_same(
    distinct: int, aggregates: tuple[Aggregate, ...], folder: Path
) -> None:
    table = table_of(distinct)
    reduction = Reduction(("k",), aggregates)
    wanted = by_key(reduce(reduction, table, MUCH, folder))
    assert by_key(reduce(reduction, table, LITTLE, folder)) == wanted


def test_few_keys_need_no_files(folder: Path, cuts: list[str]) -> None:
    reduce(Reduction(("k",), COMBINABLE), table_of(20), LITTLE, folder)
    assert cuts == []


def test_a_partition_that_fits_needs_no_files(folder: Path, cuts: list[str]) -> None:
    table = table_of(10**9)
    for reduction in (
        Reduction(("k",), SEVERAL_DISTINCT),
        Reduction(sort_by=("k",)),
        Reduction(("k",), COMBINABLE, sort_by=("k",)),
    ):
        reduce(reduction, table, MUCH, folder)
    assert cuts == []


def test_pieces_that_are_too_large_are_cut_again(folder: Path, cuts: list[str]) -> None:
    table = table_of(10**9, 5000)
    reduction = Reduction(("k",), (Aggregate("x", "sum", "v"),))
    result = by_key(reduce(reduction, table, LITTLE // 8, folder))
    assert {name.count("-") for name in cuts} == {0, 1}
    assert result == by_key(reduce(reduction, table, MUCH, folder))


def test_distinct_values_of_one_key_are_counted_in_pieces(folder: Path, cuts: list[str]) -> None:
    table = table_of(1, ROWS, values=10**9)
    result = reduce(Reduction(("k",), DISTINCT), table, LITTLE, folder)
    assert result.to_pydict() == {"k": ["key 0"], "n": [len(table["v"].unique())]}
    assert any("values" in name for name in cuts)


def test_distinct_values_of_a_key_and_of_floats_and_nulls(folder: Path) -> None:
    values = [0.0, -0.0, math.nan, -math.nan, None, 1.0] * 1000
    table = pa.table({"k": pa.array(["k"] * 6000), "v": values})
    asked = (*DISTINCT, Aggregate("keys", "count_distinct", "k"))
    result = reduce(Reduction(("k",), asked), table, LITTLE, folder)
    assert result.to_pydict() == {"k": ["k"], "n": [3], "keys": [1]}


@pytest.mark.parametrize("function", ["mean", "sum"])
def test_decimals_are_exact_whatever_the_memory(function: str, folder: Path) -> None:
    random = np.random.default_rng(1)
    cents = [Decimal(int(number)).scaleb(-2) for number in random.integers(-999, 999, ROWS)]
    keys = random.integers(0, 4, ROWS)
    table = pa.table({"k": keys, "v": pa.array(cents, pa.decimal128(9, 2))})
    asked = (Aggregate("x", function, "v"), *DISTINCT)  # type: ignore[arg-type]
    wanted = by_key(reduce(Reduction(("k",), asked), table, MUCH, folder))
    assert by_key(reduce(Reduction(("k",), asked), table, LITTLE, folder)) == wanted


@pytest.mark.parametrize("unit", [None, "us"])
def test_sums_widen_on_their_way_to_a_result_that_fits(unit: str | None, folder: Path) -> None:
    most = 2**63 - 1
    kind = pa.duration(unit) if unit else pa.int64()
    values = pa.array([most] * 3000 + [-most] * 3000 + [7], pa.int64()).view(kind)
    table = pa.table({"k": ["k"] * 6001, "v": values})
    asked = (Aggregate("x", "sum", "v"), Aggregate("last", "last", "v"))
    result = reduce(Reduction(("k",), asked), table, LITTLE, folder)
    assert result["x"].cast(pa.int64()).to_pylist() == [7]
    unique = pa.table({"k": np.arange(6001) % 3000, "v": values})
    little, much = (
        reduce(Reduction(("k",), asked), unique, memory, folder) for memory in (LITTLE, MUCH)
    )
    assert by_key(little) == by_key(much)


def test_a_sum_that_does_not_fit_is_an_error_and_leaves_nothing(folder: Path) -> None:
    table = pa.table({"k": np.arange(6000) % 3000, "v": np.full(6000, 2**63 - 1)})
    asked = (Aggregate("x", "sum", "v"),)
    with pytest.raises(JobError, match=r"^reduce\.aggregate\.x: sum of 'v' does not fit"):
        reduce(Reduction(("k",), asked), table, LITTLE, folder)


@pytest.mark.parametrize("memory_bytes", [LITTLE, MUCH])
@pytest.mark.parametrize("distinct", [5, 10**9])
@pytest.mark.parametrize("aggregates", [COMBINABLE, SEVERAL_DISTINCT], ids=["merged", "whole"])
def test_rows_that_maps_have_combined(
    memory_bytes: int, distinct: int, aggregates: tuple[Aggregate, ...], folder: Path
) -> None:
    table = table_of(distinct)
    reduction = Reduction(("k",), aggregates, combines=True)
    sent: list[pa.RecordBatch] = []
    for start in range(0, ROWS, ROWS // 3):
        combiner = reduction.combiner(2**20)
        assert isinstance(combiner, Combiner)
        sent += combiner.combine(table.slice(start, ROWS // 3).to_batches(max_chunksize=100))
    shuffled = pa.Table.from_batches(sent)
    assert "row" not in shuffled.column_names
    wanted = by_key(reduce(Reduction(("k",), aggregates), table, MUCH, folder))
    result = by_key(reduce(reduction, shuffled, memory_bytes, folder))
    assert result.schema == wanted.schema
    for name in wanted.column_names:
        assert result[name] == wanted[name], name


@pytest.mark.parametrize("group_by", [("k",), ("k", "v"), ("v", "k", "row")])
@pytest.mark.parametrize("memory_bytes", [LITTLE, MUCH])
def test_groups_come_in_order_where_they_should(
    group_by: tuple[str, ...], memory_bytes: int, folder: Path
) -> None:
    table = table_of(3000)
    reduction = Reduction(group_by, (Aggregate("rows", "sum", "row"),), sort_by=group_by)
    result = reduce(reduction, table, memory_bytes, folder)
    assert result["rows"].combine_chunks().sum().as_py() == sum(range(ROWS))
    assert sort_indices(result, group_by).to_pylist() == list(range(result.num_rows))
    distinct = table.group_by(list(group_by)).aggregate([])
    assert result.num_rows == distinct.num_rows


def test_without_rows_there_is_a_schema(folder: Path) -> None:
    table = table_of(1).slice(0, 0)
    for reduction in (
        Reduction(("k",), COMBINABLE),
        Reduction(("k",), SEVERAL_DISTINCT, sort_by=("k",)),
        Reduction(sort_by=("v",)),
        Reduction(),
    ):
        result = reduce(reduction, table, LITTLE, folder)
        wanted = reduce(reduction, table_of(1), MUCH, folder)
        assert (result.num_rows, result.schema) == (0, wanted.schema)


# Sorted rows


KEYS = {
    "few": lambda row: row * 7919 % 5,
    "one": lambda row: 1,
    "sorted": lambda row: row,
    "backwards": lambda row: -row,
    "mixed": lambda row: row * 7919 % 6007,
    "one and others": lambda row: 500 if row % 10 else row % 1000,
    "at the end": lambda row: 10**6 if row > 300 else row,
}


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("memory_bytes", [LITTLE // 4, LITTLE])
def test_sorted_rows_are_the_same(keys: str, memory_bytes: int, folder: Path) -> None:
    table = pa.table({"k": [KEYS[keys](row) for row in range(ROWS)], "row": range(ROWS)})
    result = reduce(Reduction(sort_by=("k",)), table, memory_bytes, folder)
    assert result == table.take(sort_indices(table, ["k"]))


@examples
@given(data=st.data())
def test_any_rows_are_sorted(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("sort")
    float_ = st.none() | st.sampled_from([0.0, -0.0, math.nan, math.inf, 1.5])
    text = st.none() | st.sampled_from(["", "a", "b", "ä"])
    rows = data.draw(st.lists(st.tuples(float_, text), max_size=60))
    table = pa.table(
        {
            "x": pa.array([x for x, _ in rows], pa.float64(), from_pandas=False),
            "t": pa.array([t for _, t in rows], pa.string()),
            "row": pa.array(range(len(rows)), pa.int64()),
        }
    )
    names = data.draw(st.sampled_from([("x",), ("t",), ("x", "t"), ("t", "x")]))
    result = reduce(Reduction(sort_by=names), table, data.draw(st.integers(1, 3000)), folder, 7)
    wanted = table.take(sort_indices(table, list(names)))
    assert result["row"].to_pylist() == wanted["row"].to_pylist()


def test_one_key_is_not_sorted_but_streamed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"k": np.ones(ROWS, np.int64), "row": np.arange(ROWS)})
    sorted_rows: list[int] = []
    sort = ExternalSort._sorted

    def noted(self: ExternalSort, rows: pa.Table) -> pa.Table:
        sorted_rows.append(rows.num_rows)
        return sort(self, rows)

    monkeypatch.setattr(ExternalSort, "_sorted", noted)
    assert reduce(Reduction(sort_by=("k",)), table, LITTLE // 4, folder) == table
    assert sorted_rows == []


# Functions


def sizes(table: pa.Table) -> pa.Table:
    """The keys of a table with their rows."""
    counted = table.group_by("k").aggregate([([], "count_all")])
    return pa.table(
        {"k": counted["k"], "rows": counted["count_all"], "of": [len(table)] * len(counted)}
    )


def types_by_row(table: pa.Table) -> pa.Table:
    """A result whose column is of another type for some keys."""
    return pa.table({"k": table["k"] if "key 0" in table["k"].to_pylist() else [1] * len(table)})


def function_of(name: str) -> FunctionRef:
    """A function of this module, as a job file beside it names it."""
    module = Path(__file__)
    return FunctionRef("reduce.function", module.stem, name, str(module.parent))


def test_functions_get_whole_keys(folder: Path) -> None:
    table = table_of(300)
    function = function_of("sizes")
    wanted = reduce(Reduction(function=function, key=("k",)), table, MUCH, folder)
    result = reduce(Reduction(function=function, key=("k",)), table, LITTLE, folder)
    assert by_key(result.select(["k", "rows"])) == by_key(wanted.select(["k", "rows"]))
    assert set(wanted["of"].to_pylist()) == {ROWS}
    assert max(result["of"].to_pylist()) < ROWS / 4


@pytest.mark.parametrize(("key", "distinct"), [((), 300), (("k",), 1)])
def test_functions_get_all_rows_where_they_cannot_be_cut(
    key: tuple[str, ...], distinct: int, folder: Path
) -> None:
    function = function_of("sizes")
    result = reduce(Reduction(function=function, key=key), table_of(distinct), LITTLE, folder)
    assert set(result["of"].to_pylist()) == {ROWS}


def test_a_function_gets_heavy_keys_apart_though_their_hashes_begin_alike(folder: Path) -> None:
    hashes = kernel.hash_rows([pa.array(range(2000))]).to_pylist()
    alike = [key for key, hash_ in enumerate(hashes) if hash_ % 16 == 5][:40]
    keys = [key for key in alike for _ in range(1000)]
    table = pa.table({"k": keys, "v": range(len(keys))})
    reduction = Reduction(function=function_of("sizes"), key=("k",))
    space = Workspace(384_000, folder)
    _, results = reduction.apply(0, table.schema, iter(table.to_batches(500)), space)
    result = pa.Table.from_batches(results)
    assert sorted(result["k"].to_pylist()) == alike
    assert set(result["rows"].to_pylist()) == {1000}
    assert max(result["of"].to_pylist()) * 16 <= space.rows_bytes


@pytest.mark.parametrize("seed", range(6))
def test_zeros_of_both_signs_sort_as_one_key(folder: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    zeros = {name: random.choice([0.0, -0.0], 400) for name in ("a", "b")}
    table = pa.table({**zeros, "v": range(400)})
    reduction = Reduction(sort_by=("a", "b"))
    batches = iter(table.to_batches(max_chunksize=97))
    _, results = reduction.apply(0, table.schema, batches, Workspace(18_000, folder))
    assert pa.Table.from_batches(results)["v"].to_pylist() == list(range(400))


def test_results_of_a_function_that_do_not_agree(folder: Path) -> None:
    function = function_of("types_by_row")
    reduction = Reduction(function=function, key=("k",))
    with pytest.raises(UserFunctionError, match=r"several times for partition 3, .*'k' is"):
        reduce(reduction, table_of(300), LITTLE, folder)


# What goes wrong in the middle


@pytest.mark.parametrize(
    "reduction",
    [
        Reduction(("k",), COMBINABLE),
        Reduction(("k",), DISTINCT),
        Reduction(sort_by=("row",)),
        Reduction(("k",), COMBINABLE, sort_by=("k",)),
    ],
    ids=["merged", "whole", "sorted", "sorted groups"],
)
class TestTheMiddle:
    """Of each way through local files."""

    def test_rows_that_end_in_an_error(self, reduction: Reduction, folder: Path) -> None:
        table = table_of(10**9)

        def rows() -> Iterator[pa.RecordBatch]:
            yield from table.slice(0, ROWS - 100).to_batches(max_chunksize=100)
            assert list(folder.iterdir()) != []
            raise ConnectionResetError("the server is gone")

        with pytest.raises(ConnectionResetError):
            reduction.apply(0, table.schema, rows(), Workspace(LITTLE, folder))

    def test_results_that_are_not_read_to_the_end(self, reduction: Reduction, folder: Path) -> None:
        table = table_of(10**9)
        batches = iter(table.to_batches(max_chunksize=100))
        _, results = reduction.apply(0, table.schema, batches, Workspace(LITTLE, folder))
        assert next(results).num_rows
        assert list(folder.iterdir()) != []
        results.close()  # type: ignore[attr-defined]
        assert list(folder.iterdir()) == []

    def test_a_disk_that_is_full(self, reduction: Reduction, folder: Path) -> None:
        with largest_file(4000), pytest.raises(JobFailedError, match=str(folder)) as failed:
            reduce(reduction, table_of(10**9), LITTLE, folder)
        assert isinstance(failed.value.__cause__, OSError)
        assert failed.value.__cause__.errno in (None, errno.EFBIG)
