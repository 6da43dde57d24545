"""The kernel's scatter counts the bytes that it holds, and a refused batch does not change it."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa
import pytest

from mrflight.compute import kernel
from tests.support.clusters.buffered_rows import integers, placed
from tests.support.suite.messages import refused


def test_used_bytes_count_all_buffers(needs_kernel: None) -> None:
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


def test_buffers_are_reused(needs_kernel: None) -> None:
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
    with refused(ValueError):
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
    with refused(ValueError):
        scatter.add(batch, placed(*[0] * rows))
    assert scatter.used_bytes == 0


@pytest.mark.parametrize("rows", [pa.array([1]), pa.array([1, 2, 3])])
def test_ids_must_match_the_number_of_rows(needs_kernel: None, rows: pa.Array) -> None:
    scatter = kernel.scatter(integers(0).schema, 1, 2**20, 0)
    assert scatter is not None
    with refused(ValueError):
        scatter.add(pa.record_batch({"n": rows}), placed(0, 0))
