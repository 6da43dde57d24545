"""Both kinds of buffers give every row once, in its partition and in order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.compute import kernel
from mrflight.compute.layout import canonical_type
from mrflight.shuffle.client.partition_buffers import (
    ScatteredBuffers,
    SlicedBuffers,
    partition_buffers,
)
from tests.support.clusters.buffered_rows import integers, make, placed
from tests.support.queries import key_arrays
from tests.support.suite.examples import some_of

TYPES = [type_ for type_ in key_arrays.PLAIN_TYPES if canonical_type(type_) == type_]

Blocks = Iterable[tuple[int, pa.RecordBatch]]


def as_values(column: pa.Array) -> list[Any]:
    """Return values that are equal only if their bits are: floats may be NaN, strings not UTF-8."""
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


@pytest.mark.slow_but("scattered")
@settings(max_examples=some_of(150))
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
@settings(max_examples=some_of(20))
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
def test_types_that_the_kernel_does_not_scatter_are_sliced(column: pa.Array) -> None:
    batch = pa.record_batch({"n": pa.array([1, 2, 3]), "c": column})
    buffers = partition_buffers(batch.schema, 4)
    assert isinstance(buffers, SlicedBuffers)
    for _ in range(2):
        assert list(buffers.add(batch, placed(3, 1, 3))) == []
    found = {partition: rows.to_pylist() for partition, rows in buffers.take_all()}
    first, second, third = batch.to_pylist()
    assert found == {1: [second] * 2, 3: [first, third] * 2}


def test_without_the_kernel_everything_is_sliced(monkeypatch: pytest.MonkeyPatch) -> None:
    from mrflight.compute.kernel import reference as kernel_reference

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
    """Short strings are copied as 32 bytes unless the data end before; long ones by length."""
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


def test_taken_rows_do_not_change(form: str) -> None:
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
