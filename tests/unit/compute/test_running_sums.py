"""The kernel sums values by key over batches, and begins another group where a sum does not fit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrflight.compute import kernel

if TYPE_CHECKING:  # without Rust there is none
    from mrflight import _kernel
    from mrflight.compute.kernel.native import Column

pytestmark = pytest.mark.usefixtures("needs_kernel")

DECIMAL = pa.decimal128(38, 0)
LIMITS = {pa.int32(): 2**31, pa.int64(): 2**63, DECIMAL: 10**38}
VALUES = {
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    DECIMAL: st.integers(-(10**38) + 1, 10**38 - 1),
}
KEYS = {
    pa.int8(): st.integers(-2, 2),
    pa.uint64(): st.sampled_from([0, 1, 2**63, 2**64 - 1]),
    pa.int64(): st.sampled_from([0, -1, 2**63 - 1, -(2**63)]),
    pa.date32(): st.integers(-2, 2),
    pa.timestamp("us", "UTC"): st.integers(0, 2),
}


def sums_of(schema: pa.Schema) -> kernel.RunningSums:
    sums = kernel.running_sums(schema)
    assert sums is not None
    return sums


@st.composite
def batches(draw: st.DrawFn) -> list[pa.RecordBatch]:
    """Batches of one schema, whose columns may begin in the middle of their buffers."""
    kinds = draw(st.lists(st.sampled_from(list(VALUES)), max_size=3))
    key = draw(st.sampled_from(list(KEYS)))
    schema = pa.schema([("k", key), *((f"v{i}", kind) for i, kind in enumerate(kinds))])
    made = []
    for rows in draw(st.lists(st.integers(0, 80), min_size=1, max_size=4)):
        cut = draw(st.integers(0, 3))
        columns = [
            pa.array(draw(st.lists(values, min_size=rows + cut, max_size=rows + cut)), kind)[cut:]
            for values, kind in [(KEYS[key], key), *((VALUES[kind], kind) for kind in kinds)]
        ]
        made.append(pa.RecordBatch.from_arrays(columns, schema=schema))
    return made


def added(rows: Sequence[Sequence[Any]]) -> dict[Any, list[Any]]:
    """Return the exact sums of each key."""
    found: dict[Any, list[Any]] = defaultdict(list)
    for key, *values in rows:
        sums = found[key] or [0] * len(values)
        found[key] = [a + int(b) for a, b in zip(sums, values, strict=True)]
    return found


@given(given=batches())
def test_the_sums_of_all_batches_are_exact(given: list[pa.RecordBatch]) -> None:
    sums = sums_of(given[0].schema)
    assert all(map(sums.add, given))
    groups = sums.groups
    found = sums.take()
    found.validate(full=True)
    assert found.schema == given[0].schema
    assert found.num_rows == groups
    table = pa.Table.from_batches(given)
    rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    result = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
    assert added(result) == added(rows)
    assert list(added(result)) == list(added(rows))  # by the first row of each key
    if len(result) > len(added(rows)):
        largest = [max(abs(int(row[i])) for row in rows) for i in range(1, len(rows[0]))]
        limits = [LIMITS[kind] for kind in table.schema.types[1:]]
        assert any(len(rows) * a >= b for a, b in zip(largest, limits, strict=True))


def test_many_keys_have_one_group_each_and_are_forgotten_when_they_are_taken() -> None:
    keys = np.random.default_rng(1).integers(-30_000, 30_000, 200_000)
    schema = pa.schema([("k", pa.int32()), ("n", pa.int64())])
    batch = pa.record_batch([pa.array(keys, pa.int32()), pa.array(keys)], schema=schema)
    sums = sums_of(schema)
    empty_bytes = sums.used_bytes
    for _ in range(2):
        for start in range(0, len(keys), 70_001):
            assert sums.add(batch.slice(start, 70_001))
        distinct, firsts, counts = np.unique(keys, return_index=True, return_counts=True)
        assert sums.groups == len(distinct)
        assert sums.used_bytes >= empty_bytes + 16 * len(distinct)
        order = np.argsort(firsts)
        found = sums.take()
        assert found["k"].to_pylist() == distinct[order].tolist()
        assert found["n"].to_pylist() == (distinct * counts)[order].tolist()
        assert sums.groups == 0
        assert sums.used_bytes == empty_bytes
    assert sums.take().num_rows == 0


@pytest.mark.parametrize("kind", list(LIMITS))
def test_a_sum_that_does_not_fit_begins_another_group(kind: pa.DataType) -> None:
    most = LIMITS[kind] - 1
    schema = pa.schema([("k", pa.int64()), ("v", kind), ("n", pa.int32())])
    values = [most, -1, 1, most, 1, -most, 1]
    columns = [pa.repeat(7, 7), pa.array(values, kind), pa.repeat(pa.scalar(1, pa.int32()), 7)]
    sums = sums_of(schema)
    sums.add(pa.RecordBatch.from_arrays(columns, schema=schema))
    sums.add(pa.RecordBatch.from_arrays([each[:1] for each in columns], schema=schema))
    found = sums.take()
    assert 1 < found.num_rows < 8
    assert set(found["k"].to_pylist()) == {7}
    assert sum(map(int, found["v"].to_pylist())) == sum(values) + most
    assert sum(found["n"].to_pylist()) == 8


@pytest.mark.parametrize("column", [0, 1])
def test_a_batch_with_a_null_is_not_added(column: int) -> None:
    columns = [pa.array([1, 2, 3]), pa.array([1, 2, 3])]
    columns[column] = pa.array([1, None, 3])
    batch = pa.RecordBatch.from_arrays(columns, ["k", "v"])
    sums = sums_of(batch.schema)
    assert not sums.add(batch)
    assert sums.groups == 0
    assert sums.add(batch.slice(2))
    assert sums.take().to_pydict() == {"k": [3], "v": [3]}


@pytest.mark.parametrize(
    "types",
    [
        [pa.string(), pa.int64()],
        [pa.float64(), pa.int64()],
        [pa.bool_(), pa.int64()],
        [pa.decimal128(38, 0), pa.int64()],
        [pa.dictionary(pa.int32(), pa.int64()), pa.int64()],
        [pa.int64(), pa.float64()],
        [pa.int64(), pa.int16()],
        [pa.int64(), pa.uint64()],
        [pa.int64(), pa.duration("s")],
        [pa.int64(), pa.decimal128(37, 0)],
        [pa.int64(), pa.decimal256(38, 0)],
        [pa.int64(), pa.list_(pa.int64())],
    ],
)
def test_other_types_are_not_summed(types: list[pa.DataType]) -> None:
    assert kernel.running_sums(pa.schema([(str(i), kind) for i, kind in enumerate(types)])) is None


class Given(NamedTuple):
    """A column of integers, of which as many are said to be there as ``rows``."""

    values: list[int]
    width: int = 8
    rows: int | None = None

    def described(self) -> Column:
        from mrflight.compute.kernel.native import Column

        rows = len(self.values) if self.rows is None else self.rows
        data = pa.py_buffer(np.array(self.values, f"i{self.width}"))
        return Column("signed", self.width, rows, 0, [None, data], [])


@pytest.fixture
def integers() -> _kernel.RunningSums:
    """Sums of one column of 64 bits by a key of 64 bits."""
    from mrflight import _kernel

    return _kernel.RunningSums(("signed", 8), [("signed", 8)])


@pytest.mark.parametrize(
    ("key", "values"),
    [
        (Given([1, 2]), []),
        (Given([1, 2]), [Given([1])]),
        (Given([1, 2]), [Given([1, 2], 4)]),
        (Given([1, 2], 4), [Given([1, 2])]),
        (Given([1, 2], rows=3), [Given([1, 2, 3])]),
        (Given([1, 2]), [Given([1], rows=2)]),
    ],
)
def test_nothing_is_added_of_malformed_columns(
    integers: _kernel.RunningSums, key: Given, values: list[Given]
) -> None:
    with pytest.raises(ValueError, match="malformed"):
        integers.add(key.described(), [each.described() for each in values])
    assert integers.groups == 0


def test_buffers_of_a_wrong_size_are_refused(integers: _kernel.RunningSums) -> None:
    integers.add(Given([1]).described(), [Given([5]).described()])
    with pytest.raises(ValueError, match="wrong size"):
        integers.take(pa.allocate_buffer(8), [pa.allocate_buffer(16)])
    assert integers.groups == 1
