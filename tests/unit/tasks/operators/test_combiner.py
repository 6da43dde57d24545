"""A combiner combines rows if that pays, and never changes the result."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from mrflight.config.aggregates import Aggregate
from mrflight.errors import SchemaMismatchError
from mrflight.tasks.operators import combiner
from mrflight.tasks.operators.combiner import (
    SAMPLE_ROWS,
    combine_groups,
    combine_where_it_pays,
)
from mrflight.tasks.operators.grouping import group
from mrflight.tasks.operators.partial_aggregates import (
    PartialAggregates,
    infer_partials,
    plan_partials,
)
from tests.support.suite.messages import refused

MIB = 2**20
SUM = (Aggregate("total", "sum", "v"),)
ALL = (
    *SUM,
    Aggregate("n", "count", None),
    Aggregate("mean", "mean", "v"),
    Aggregate("first", "first", "v"),
    Aggregate("last", "last", "v"),
)


@pytest.fixture
def small_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the combiner decide every few hundred rows."""
    monkeypatch.setattr(combiner, "SAMPLE_ROWS", 200)
    monkeypatch.setattr(combiner, "GATHER_ROWS", 400)
    monkeypatch.setattr(combiner, "GATHER_BYTES", 0)
    monkeypatch.setattr(combiner, "MIN_COMPACTED_ROWS", 100)
    monkeypatch.setattr(combiner, "RESAMPLE_EVERY_ROWS", 1000)


def table_of(keys: list[int] | np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Table:
    return pa.table({"k": keys, "v": np.arange(len(keys)), "unused": ["?"] * len(keys)})


def batches_of(table: pa.Table, rows: int) -> Iterator[pa.RecordBatch]:
    return iter(table.to_batches(max_chunksize=rows))


def rows_of(batches: list[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)


def assert_result(sent: list[pa.RecordBatch], table: pa.Table) -> None:
    plan = infer_partials(sent[0].schema, ["k"], ALL)
    assert plan is not None
    result = plan.finish(pa.Table.from_batches(sent))
    assert result.sort_by("k") == group(table, ["k"], ALL).sort_by("k")


def test_ten_keys_over_a_split_send_ten_rows() -> None:
    table = table_of(np.arange(1_000_000) % 10)
    sent = list(combine_groups(batches_of(table, 30_000), ["k"], ALL, 64 * MIB))
    assert rows_of(sent) == 10
    assert_result(sent, table)


def test_distinct_keys_are_passed_on() -> None:
    table = table_of(np.arange(300_000))
    sent = list(combine_groups(batches_of(table, 30_000), ["k"], ALL, 64 * MIB))
    assert rows_of(sent) == 300_000
    assert_result(sent, table)


@pytest.mark.usefixtures("small_looks")
@pytest.mark.parametrize("distinct", [1, 7, 90, 150, 500, 3000])
@pytest.mark.parametrize("rows", [1, 150, 1000])
@pytest.mark.parametrize("memory_bytes", [1, 2000, MIB])
def test_the_result_does_not_depend_on_combining(
    distinct: int, rows: int, memory_bytes: int
) -> None:
    random = np.random.default_rng(1)
    table = table_of(random.integers(0, distinct, 3000 if rows > 1 else 600))
    sent = list(combine_groups(batches_of(table, rows), ["k"], ALL, memory_bytes))
    assert rows_of(sent) <= table.num_rows
    assert_result(sent, table)


@pytest.mark.usefixtures("small_looks")
def test_it_samples_again_as_the_data_changes() -> None:
    unique, few = np.arange(10_000), np.full(10_000, -1)
    table = table_of(np.concatenate([unique, few]))
    sent = list(combine_groups(batches_of(table, 100), ["k"], ALL, MIB))
    assert 10_000 < rows_of(sent) < 12_000
    assert_result(sent, table)
    back = table_of(np.concatenate([few, unique]))
    again = list(combine_groups(batches_of(back, 100), ["k"], ALL, MIB))
    assert_result(again, back)
    assert 10_001 <= rows_of(again) <= 10_100  # what was held may go as it is


@pytest.mark.usefixtures("small_looks")
def test_held_groups_stay_within_the_memory() -> None:
    table = table_of(np.repeat(np.arange(20_000), 4))
    taken = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal taken
        for batch in batches_of(table, 100):
            taken += batch.num_rows
            yield batch

    row_bytes, sent = 44, 0
    for batch in combine_groups(batches(), ["k"], ALL, 50_000):
        sent += batch.num_rows
        assert taken / 4 - sent <= 2 * 50_000 / row_bytes
    assert sent < 25_000


def test_sums_that_do_not_fit_are_sent_row_by_row() -> None:
    most = 2**63 - 1
    table = pa.table({"k": [1, 1], "v": [most, most]})
    sent = list(combine_groups(batches_of(table, 2), ["k"], SUM, MIB))
    assert rows_of(sent) == 2
    sent += combine_groups(batches_of(table.set_column(1, "v", [[0, -most]]), 2), ["k"], SUM, MIB)
    assert rows_of(sent) == 3
    plan = infer_partials(sent[0].schema, ["k"], SUM)
    assert plan is not None
    assert plan.finish(pa.Table.from_batches(sent)).to_pydict() == {"k": [1], "total": [most]}


SUMS = (*SUM, Aggregate("n", "count", None), Aggregate("mean", "mean", "v"))


@pytest.mark.usefixtures("small_looks")
@pytest.mark.parametrize("distinct", [1, 90, 500, 3000])
@pytest.mark.parametrize("memory_bytes", [1, 50_000, MIB])
@pytest.mark.parametrize("nulls", ["", "k", "v", "kv"])
def test_sums_do_not_depend_on_nulls_and_memory(
    distinct: int, memory_bytes: int, nulls: str
) -> None:
    random = np.random.default_rng(1)
    table = pa.table({"k": random.integers(0, distinct, 6000), "v": np.arange(6000)})
    for name in nulls:  # the first half of the rows has no nulls
        keep = pa.array((np.arange(6000) < 3000) | (random.random(6000) < 0.9))
        column = pc.if_else(keep, table[name], None)
        table = table.set_column(table.column_names.index(name), name, column)
    sent = list(combine_groups(batches_of(table, 150), ["k"], SUMS, memory_bytes))
    assert rows_of(sent) <= table.num_rows
    plan = infer_partials(sent[0].schema, ["k"], SUMS)
    assert plan is not None
    result = plan.finish(pa.Table.from_batches(sent))
    assert result.sort_by("k") == group(table, ["k"], SUMS).sort_by("k")


@pytest.mark.usefixtures("needs_kernel", "small_looks")
def test_running_sums_stay_within_the_memory_and_end_where_they_do_not_pay() -> None:
    few, unique = np.repeat(np.arange(20_000), 3), np.arange(20_000, 30_000)
    table = pa.table({"k": np.concatenate([few, unique])})
    table = table.append_column("v", table["k"])
    pieces = list(combine_groups(batches_of(table, 100), ["k"], SUM, 400_000))
    assert 100 < max(piece.num_rows for piece in pieces) <= 200_000 / 16
    assert pieces[-1].num_rows <= 200  # a batch, or the last sample
    assert 30_000 <= rows_of(pieces) < 30_100
    alone = list(combine_groups(batches_of(table[:60_000], 100), ["k"], SUM, 400 * MIB))
    assert [piece.num_rows for piece in alone] == [0, 20_000]


def test_unused_columns_are_dropped_if_rows_cannot_be_combined() -> None:
    table = pa.table({"v": [1, 2], "unused": [3, 4], "k": pa.array(["a", "b"]).dictionary_encode()})
    distinct = (Aggregate("n", "count_distinct", "v"),)
    sent = pa.Table.from_batches(combine_groups(batches_of(table, 1), ["k"], distinct, MIB))
    assert sent == pa.table({"k": ["a", "b"], "v": [1, 2]})


@pytest.mark.parametrize("rows", [0, 5])
def test_rows_of_any_layout_are_sent_with_one_schema(rows: int) -> None:
    keys = pa.array(["a"] * rows, pa.string())
    schemas = []
    for layout in (keys, keys.dictionary_encode(), keys.cast(pa.large_string())):
        batch = pa.record_batch({"k": layout, "v": pa.array(range(rows), pa.int8())})
        sent = list(combine_groups(iter([batch]), ["k"], ALL, MIB))
        assert sum(batch.num_rows for batch in sent) == min(rows, 1)
        schemas += [batch.schema for batch in sent]
    assert all(schema == schemas[0] for schema in schemas)
    assert schemas[0].field("k").type == pa.string()


def test_no_batches_result_in_none() -> None:
    assert list(combine_groups(iter([]), ["k"], SUM, MIB)) == []


def test_a_batch_with_different_columns_is_refused() -> None:
    batches = [
        pa.record_batch({"k": [1], "v": [1]}),
        pa.record_batch({"k": [1], "v": ["a"]}),
    ]
    with refused(SchemaMismatchError):
        list(combine_groups(iter(batches), ["k"], SUM, MIB))


class Recording:
    """A plan that notes in how many batches the rows come that it combines."""

    def __init__(self, plan: PartialAggregates) -> None:
        self._plan = plan
        self.batches: list[int] = []

    def combine(self, rows: pa.Table) -> pa.Table | None:
        self.batches.append(len(rows.to_batches()))
        return self._plan.combine(rows)


@pytest.mark.parametrize(("keys", "are_few"), [(10, True), (10_000, False)])
def test_rows_of_few_groups_are_combined_without_being_gathered(keys: int, are_few: bool) -> None:
    rows = pa.RecordBatch.from_pydict({"k": [i % keys for i in range(SAMPLE_ROWS)]})
    aggregates = [Aggregate("n", "count", None)]
    plan = plan_partials(rows.schema, ["k"], aggregates)
    assert plan is not None
    recording = Recording(plan)
    batches = [plan.from_rows(rows)] * 9
    found = pa.Table.from_batches(combine_where_it_pays(recording, batches, 2**30))
    assert sum(found["count(*)"].to_pylist()) == 9 * SAMPLE_ROWS
    assert (set(recording.batches[:9]) == {1}) == are_few
