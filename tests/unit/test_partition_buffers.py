"""Every row comes out once, in its partition and in order; both forms, under one budget."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight import kernel
from mrflight.shuffle import partition_buffers as module
from mrflight.shuffle.layout import plain_type
from mrflight.shuffle.partition_buffers import (
    PartitionBuffers,
    ScatteredBuffers,
    SlicedBuffers,
    partition_buffers,
)
from tests.support import key_arrays

TYPES = [type_ for type_ in key_arrays.PLAIN_TYPES if plain_type(type_) == type_]
KIB = 2**10

Blocks = Iterable[tuple[int, pa.RecordBatch]]


@pytest.fixture(params=["scattered", "sliced"], scope="module")
def form(request: pytest.FixtureRequest) -> str:
    if request.param == "scattered":
        request.getfixturevalue("needs_kernel")
    return str(request.param)


def make(
    form: str,
    schema: pa.Schema,
    partitions: int,
    block_bytes: int = module.BLOCK_BYTES,
    budget_bytes: int = module.BUFFER_BYTES,
) -> PartitionBuffers:
    if form == "sliced":
        return SlicedBuffers(partitions, block_bytes, budget_bytes)
    buffers = partition_buffers(schema, partitions, block_bytes, budget_bytes)
    assert isinstance(buffers, ScatteredBuffers)
    return buffers


def placed(*ids: int) -> pa.Int32Array:
    return pa.array(ids, pa.int32())


def integers(rows: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(rows), pa.int64())})


def as_values(column: pa.Array) -> list[Any]:
    """What compares equal only to the same bits: floats may be NaN, and strings no UTF-8."""
    type_ = column.type
    if pa.types.is_null(type_) or pa.types.is_boolean(type_):
        return column.to_pylist()
    if pa.types.is_string(type_):
        return column.view(pa.binary()).to_pylist()
    if pa.types.is_binary(type_) or pa.types.is_fixed_size_binary(type_):
        return column.to_pylist()
    width = type_.bit_width // 8
    flat = pa.Array.from_buffers(
        pa.binary(width), len(column), column.buffers(), offset=column.offset
    )
    return flat.to_pylist()


def rows_of(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    return list(zip(*map(as_values, batch.columns), strict=True))


def collected(blocks: Blocks, into: dict[int, list[Any]], schema: pa.Schema) -> None:
    for partition, rows in blocks:
        assert rows.num_rows > 0
        assert rows.schema.equals(schema, check_metadata=True)
        into[partition] += rows_of(rows)


@st.composite
def columns_of(draw: st.DrawFn, types: list[pa.DataType], rows: int) -> pa.RecordBatch:
    columns = [draw(key_arrays.plain_arrays(type_, rows)) for type_ in types]
    return pa.RecordBatch.from_arrays(columns, names=[str(i) for i in range(len(types))])


@settings(max_examples=150)
@given(data=st.data())
def test_every_row_comes_out_of_its_partition_in_order(form: str, data: st.DataObject) -> None:
    types = data.draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=4))
    partitions = data.draw(st.sampled_from([1, 2, 7, 300]))
    block_bytes = data.draw(st.sampled_from([1, 100, 2000, 2**20]))
    budget_bytes = data.draw(st.sampled_from([1, 500, 4000, 2**20]))
    schema = pa.schema([(str(i), type_) for i, type_ in enumerate(types)])
    buffers = make(form, schema, partitions, block_bytes, budget_bytes)
    expected, found = defaultdict(list), defaultdict(list)
    for rows in data.draw(st.lists(st.integers(0, 30), min_size=1, max_size=5)):
        batch = data.draw(columns_of(types, rows))
        chosen = st.integers(0, partitions - 1)
        ids = data.draw(st.lists(chosen, min_size=rows, max_size=rows))
        for row, partition in zip(rows_of(batch), ids, strict=True):
            expected[partition].append(row)
        collected(buffers.add(batch, placed(*ids)), found, schema)
        assert buffers.held_bytes <= budget_bytes
    collected(buffers.take_all(), found, schema)
    assert found == expected
    assert buffers.held_bytes == 0
    assert list(buffers.take_all()) == []


@pytest.mark.parametrize("type_", TYPES, ids=str)
@settings(max_examples=20)
@given(data=st.data())
def test_every_type_is_scattered(
    needs_kernel: None, type_: pa.DataType, data: st.DataObject
) -> None:
    schema = pa.schema([("0", type_)])
    buffers = partition_buffers(schema, 3)
    assert isinstance(buffers, ScatteredBuffers)
    expected, found = defaultdict(list), defaultdict(list)
    for _ in range(2):
        batch = data.draw(columns_of([type_], data.draw(st.integers(0, 40))))
        ids = [row * row % 3 for row in range(batch.num_rows)]
        for row, partition in zip(rows_of(batch), ids, strict=True):
            expected[partition].append(row)
        collected(buffers.add(batch, placed(*ids)), found, schema)
    collected(buffers.take_all(), found, schema)
    assert found == expected


NESTED = [
    pa.array([[1], None, [2, 3]]),
    pa.array([{"a": 1}, {"a": None}, None]),
    pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())),
    pa.array(["a", None, "a"]).dictionary_encode(),
    pa.array(["a", None, "b"], pa.large_string()),
]


@pytest.mark.parametrize("column", NESTED, ids=lambda column: str(column.type))
def test_what_the_kernel_does_not_scatter_is_sliced(column: pa.Array) -> None:
    batch = pa.record_batch({"n": pa.array([1, 2, 3]), "c": column})
    buffers = partition_buffers(batch.schema, 4)
    assert isinstance(buffers, SlicedBuffers)
    for _ in range(2):
        assert list(buffers.add(batch, placed(3, 1, 3))) == []
    found = {partition: rows.to_pylist() for partition, rows in buffers.take_all()}
    first, second, third = batch.to_pylist()
    assert found == {1: [second] * 2, 3: [first, third] * 2}


def test_without_the_kernel_everything_is_sliced(monkeypatch: pytest.MonkeyPatch) -> None:
    from mrflight import kernel_reference

    monkeypatch.setattr(kernel, "_kernel", kernel_reference)
    assert isinstance(partition_buffers(integers(0).schema, 4), SlicedBuffers)


def test_extension_types_stay_what_they_are(form: str) -> None:
    uuids = pa.uuid().wrap_array(pa.array([b"0" * 16, None, b"1" * 16], pa.binary(16)))
    batch = pa.record_batch({"id": uuids})
    buffers = make(form, batch.schema, 2)
    assert list(buffers.add(batch, placed(1, 1, 0))) == []
    found = dict(buffers.take_all())
    assert found[0].equals(batch.slice(2))
    assert found[1].equals(batch.slice(0, 2))


def test_only_a_partition_with_a_null_has_a_bitmap(needs_kernel: None) -> None:
    batch = pa.record_batch({"n": pa.array([1, None, 3, 4]), "s": pa.array(["a", "b", None, "d"])})
    buffers = partition_buffers(batch.schema, 3)
    for _ in range(10):
        assert list(buffers.add(batch, placed(0, 1, 2, 0))) == []
    found = dict(buffers.take_all())
    bitmaps = {
        partition: [column.buffers()[0] is not None for column in rows.columns]
        for partition, rows in found.items()
    }
    assert bitmaps == {0: [False, False], 1: [True, False], 2: [False, True]}
    assert [column.null_count for column in found[1].columns] == [10, 0]


@pytest.mark.parametrize("partitions", [1, 5, 700])
def test_strings_of_all_lengths_stay_whole(form: str, partitions: int) -> None:
    """Short ones are copied in 32 bytes, unless the data end before; long ones by their length."""
    random = np.random.default_rng(partitions)
    lengths = random.choice([0, 1, 31, 32, 33, 119, 5000], 3000)
    texts = [chr(97 + row % 26) * int(size) for row, size in enumerate(lengths)]
    strings = pa.array(texts, mask=random.random(3000) < 0.1)
    batch = pa.record_batch({"s": strings, "row": pa.array(range(3000))}).slice(1)
    ids = pa.array(random.integers(0, partitions, batch.num_rows), pa.int32())
    expected, found = defaultdict(list), defaultdict(list)
    for row, partition in zip(rows_of(batch), ids.to_pylist(), strict=True):
        expected[partition].append(row)
    buffers = make(form, batch.schema, partitions)
    collected(buffers.add(batch, ids), found, batch.schema)
    collected(buffers.take_all(), found, batch.schema)
    assert found == expected


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
    for start in range(0, 990, 90):  # in no order, that all grow
        rows = np.random.default_rng(3).permutation(990)[start : start + 90]
        batch = pa.record_batch({"n": pa.array(rows)})
        due += [(p, rows.num_rows) for p, rows in buffers.add(batch, pa.array(ids[rows]))]
        assert buffers.held_bytes <= 7600
    assert due[0][0] == 1
    assert {partition for partition, _ in due} <= {1, 3}
    left = {partition: rows.num_rows for partition, rows in buffers.take_all()}
    assert [left[partition] for partition in (0, 2, 4)] == [100, 100, 90]


def test_a_partition_of_most_rows_leaves_the_others_alone(form: str) -> None:
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
    # Of what is held a third may be room to grow.
    assert np.mean(sizes) > budget / partitions * 2 / 3


def test_what_is_held_counts_all_buffers(needs_kernel: None) -> None:
    batch = pa.record_batch({"s": pa.array(["a" * 50, None]), "n": pa.array([1, 2])})
    scatter = kernel.scatter(batch.schema, 2, 2**20, 0)
    assert scatter is not None
    payload = before = 0
    for _ in range(400):
        scatter.add(batch, placed(0, 1))
        payload += 50 + 2 * 4 + 2 * 8
        assert max(payload, before) <= scatter.used_bytes <= payload * 1.6 + 500
        assert scatter.used_bytes + scatter.free_bytes <= 2**20
        before = scatter.used_bytes
    rows, sizes = scatter.measure()
    assert rows.tolist() == [400, 400]
    assert sizes.tolist() == [400 * 62, 400 * 12]
    taken = scatter.take(0)
    assert taken.num_rows == 400
    scatter.take(1)
    assert scatter.used_bytes == 0


def test_buffers_are_used_again(needs_kernel: None) -> None:
    scatter = kernel.scatter(integers(0).schema, 1, 2**20, 2**10)
    assert scatter is not None
    addresses = set()
    for _ in range(5):
        scatter.add(integers(100), placed(*[0] * 100))
        assert scatter.used_bytes == 2**10
        assert scatter.free_bytes == 0
        addresses.add(scatter.take(0).column(0).buffers()[1].address)
        assert (scatter.used_bytes, scatter.free_bytes) == (0, 2**10)
    assert len(addresses) == 1
    scatter.release()
    assert scatter.free_bytes == 0


def test_slices_do_not_keep_what_has_been_taken() -> None:
    batch, ids = integers(2**14), placed(*[0] * (2**14 - 1), 1)
    before = pa.total_allocated_bytes()
    buffers = SlicedBuffers(2, 2**17 - 8, 4 * 2**17)
    for _ in range(20):
        for partition, rows in buffers.add(batch, ids):
            assert (partition, rows.num_rows) == (0, 2**14 - 1)
            del rows
        assert pa.total_allocated_bytes() - before <= 5 * 2**17
    assert [(p, rows.num_rows) for p, rows in buffers.take_all()] == [(1, 20)]


def test_a_row_above_the_budget_goes_alone(form: str) -> None:
    strings = pa.array(["a", "b" * 5000, "c"])
    batch = pa.record_batch({"s": strings})
    buffers = make(form, batch.schema, 2, budget_bytes=1000)
    blocks = [*buffers.add(batch, placed(0, 0, 0)), *buffers.take_all()]
    assert blocks[0][1].column(0).to_pylist() == ["a"]
    assert blocks[1][1].column(0).to_pylist() == ["b" * 5000]
    assert blocks[2][1].column(0).to_pylist() == ["c"]


def test_what_was_taken_does_not_change(form: str) -> None:
    buffers = make(form, integers(0).schema, 1, block_bytes=8)
    ((_, first),) = buffers.add(integers(1000), placed(*[0] * 1000))
    ((_, second),) = buffers.add(integers(2), placed(0, 0))
    del buffers
    assert first.equals(integers(1000))
    assert second.equals(integers(2))


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        ([0, None], "row 1 has no partition"),
        ([0, 2], "row 1 is placed in partition 2, which does not exist: there are 2"),
        ([-1, 0], "row 0 is placed in partition -1"),
    ],
)
def test_rows_without_a_partition_are_refused(form: str, ids: list[int], says: str) -> None:
    buffers = make(form, integers(0).schema, 2)
    assert list(buffers.add(integers(2), placed(1, 1))) == []
    with pytest.raises(ValueError, match=says):
        list(buffers.add(integers(2), pa.array(ids, pa.int32())))
    ((partition, rows),) = buffers.take_all()
    assert (partition, rows.equals(integers(2))) == (1, True)


@pytest.mark.parametrize("budget_bytes", [0, 2**30 + 1])
def test_budgets_that_cannot_be_kept(form: str, budget_bytes: int) -> None:
    with pytest.raises(ValueError, match="a budget is 1 to"):
        make(form, integers(0).schema, 2, budget_bytes=budget_bytes)


def offsets(*values: int) -> pa.Buffer:
    return pa.py_buffer(struct.pack(f"<{len(values)}i", *values))


def malformed() -> Iterator[pa.Array]:
    data = pa.py_buffer(b"abc")
    yield pa.Array.from_buffers(pa.string(), 3, [None, offsets(0, 99, 2, 3), data])
    yield pa.Array.from_buffers(pa.binary(), 3, [None, offsets(0, 2, 1, 3), data])
    yield pa.Array.from_buffers(pa.binary(), 3, [None, offsets(0, -2, 2, 3), data])


@pytest.mark.parametrize("number", range(len(list(malformed()))))
def test_a_malformed_batch_changes_nothing(needs_kernel: None, number: int) -> None:
    # No array in a variable here: pytest would print it, and pyarrow crashes on printing it.
    schema = pa.schema({"n": pa.int64(), "c": list(malformed())[number].type})
    good = pa.RecordBatch.from_pylist([{"n": 1}, {"n": 2}], schema)
    scatter = kernel.scatter(schema, 2, 2**20, 0)
    assert scatter is not None
    scatter.add(good, placed(1, 1))
    held = scatter.used_bytes
    with pytest.raises(ValueError, match="a column is malformed"):
        scatter.add(
            pa.RecordBatch.from_arrays(
                [pa.array([7, 8, 9]), list(malformed())[number]], schema=schema
            ),
            placed(0, 1, 1),
        )
    assert scatter.used_bytes == held
    assert scatter.take(1).equals(good)
    assert scatter.take(0).num_rows == 0


def test_a_column_of_a_partition_stays_within_32_bit_offsets(needs_kernel: None) -> None:
    # Every other row is null and its offsets run back, so that all rows have the same 64 MiB.
    size, rows = 2**26, 65
    ends = offsets(*[0, size] * (rows // 2 + 1))
    valid = pa.array([row % 2 == 0 for row in range(rows)]).buffers()[1]
    column = pa.Array.from_buffers(pa.binary(), rows, [valid, ends, pa.allocate_buffer(size)])
    scatter = kernel.scatter(pa.schema({"c": pa.binary()}), 1, 2**20, 0)
    assert scatter is not None
    batch = pa.RecordBatch.from_arrays([column], ["c"])
    with pytest.raises(ValueError, match=r"more than 2\^31 bytes"):
        scatter.add(batch, placed(*[0] * rows))
    assert scatter.used_bytes == 0


@pytest.mark.parametrize("rows", [pa.array([1]), pa.array([1, 2, 3])])
def test_as_many_ids_as_rows(needs_kernel: None, rows: pa.Array) -> None:
    scatter = kernel.scatter(integers(0).schema, 1, 2**20, 0)
    assert scatter is not None
    with pytest.raises(ValueError, match="more or fewer rows than are placed"):
        scatter.add(pa.record_batch({"n": rows}), placed(0, 0))
