"""Batches of plain clients are cut into pieces that are small when decoded, with the same rows."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.compute.layout import canonical_schema, to_canonical
from mrflight.errors import ProtocolError
from mrflight.shuffle.store import canonical_slices as module
from mrflight.shuffle.store.canonical_slices import SLICE_BYTES, canonical_slices
from mrflight.shuffle.store.decoded_size import row_bytes
from tests.support.commands.own_process import in_own_process
from tests.support.suite.examples import some_of
from tests.support.suite.messages import refused

WIDE = 100_000
texts = pa.array(["x" * WIDE, "y", None])


def encoded(values: pa.Array, rows: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array([i % 3 for i in range(rows)]), values)


def views(rows: int) -> pa.Array:
    """Return columns that all have the same bytes."""
    (view,) = (pa.array(["x" * WIDE], pa.string_view()),)
    _, one, data = view.buffers()
    every = pa.py_buffer(one.to_pybytes()[:16] * rows)
    return pa.Array.from_buffers(pa.string_view(), rows, [None, every, data])


def lists(of: pa.Array) -> pa.Array:
    """Return lists of two elements, of which every third is null."""
    offsets = pa.array(range(0, len(of) + 1, 2), pa.int32())
    mask = pa.array([i % 3 == 2 for i in range(len(offsets) - 1)])
    return pa.ListArray.from_arrays(offsets, of, mask=mask)


def maps(of: pa.Array) -> pa.Array:
    return pa.MapArray.from_arrays(
        pa.array(range(len(of) + 1), pa.int32()), pa.array(["k"] * len(of)), of
    )


def runs(values: pa.Array, length: int) -> pa.Array:
    ends = pa.array([length * (i + 1) for i in range(len(values))], pa.int32())
    return pa.RunEndEncodedArray.from_arrays(ends, values)


COLUMNS: dict[str, Callable[[], pa.Array]] = {
    "dictionary": lambda: encoded(texts, 600),
    "runs": lambda: runs(texts, 200),
    "views": lambda: views(400),
    "lists of a dictionary": lambda: lists(encoded(texts, 600)),
    "lists of a fixed size of a dictionary": lambda: pa.FixedSizeListArray.from_arrays(
        encoded(texts, 600), 2
    ),
    "maps to a dictionary": lambda: maps(encoded(texts, 600)),
    "structs of a dictionary": lambda: pa.StructArray.from_arrays([encoded(texts, 600)], ["a"]),
    "lists of views": lambda: lists(views(400)),
    "a dictionary of lists": lambda: encoded(pa.array([["x" * WIDE, "y"], [], None]), 600),
    "runs of lists": lambda: runs(pa.array([["x" * WIDE, "y"], [], None]), 200),
    "a dictionary of large strings": lambda: encoded(texts.cast(pa.large_string()), 600),
    "as it is": lambda: pa.array(["x" * WIDE] * 200),
}


@pytest.mark.slow_but("runs", "lists of a fixed size of a dictionary")
@pytest.mark.parametrize("name", COLUMNS)
def test_a_batch_is_cut_by_its_decoded_size(name: str) -> None:
    column = COLUMNS[name]()
    batch = pa.record_batch({"n": pa.array(range(len(column))), "of": column})
    plain = to_canonical(batch, canonical_schema(batch.schema))
    assert plain.nbytes > 4 * SLICE_BYTES
    for part in (batch, batch.slice(7, len(column) - 20)):
        in_own_process(lambda part=part: cut(part))  # type: ignore[misc]


def cut(part: pa.RecordBatch) -> None:
    before = pa.total_allocated_bytes()
    pieces = []
    for piece in canonical_slices(part):
        assert piece.nbytes <= SLICE_BYTES
        assert pa.total_allocated_bytes() - before <= 6 * SLICE_BYTES
        pieces.append(piece.to_pylist())
        del piece
    assert len(pieces) >= 4
    assert [row for rows in pieces for row in rows] == part.to_pylist()


def test_numbers_are_cut_without_measuring_each_row() -> None:
    in_own_process(cut_two_billion_numbers)


def cut_two_billion_numbers() -> None:
    rows = 2**31 - 1
    column = pa.RunEndEncodedArray.from_arrays(pa.array([rows], pa.int32()), pa.array([7]))
    before = pa.total_allocated_bytes()
    pieces = canonical_slices(pa.RecordBatch.from_arrays([column], ["n"]))
    first = next(pieces)
    assert first.num_rows <= SLICE_BYTES / 8
    assert first.column(0) == pa.array([7] * first.num_rows)
    assert pa.total_allocated_bytes() - before <= 3 * SLICE_BYTES


@pytest.mark.parametrize("batch", [
    pa.record_batch({"n": pa.array([], pa.int64())}),
    pa.record_batch({"n": pa.array([], pa.string()).dictionary_encode()}),
    pa.record_batch({"n": pa.Array.from_buffers(pa.null(), 10**12, [None])}),
    pa.record_batch({"n": ["a", None]}),
])  # fmt: skip
def test_a_small_batch_stays_whole(batch: pa.RecordBatch) -> None:
    (piece,) = canonical_slices(batch)
    assert piece.num_rows == batch.num_rows
    assert piece.schema == canonical_schema(batch.schema)


def test_a_row_that_is_large_by_itself_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ROW_BYTES", WIDE)
    large = pa.array(["x" * SLICE_BYTES * 2, "y"]).dictionary_encode()
    pieces = list(canonical_slices(pa.record_batch({"a": large})))
    assert [piece.num_rows for piece in pieces] == [1, 1]


def test_a_row_that_is_large_by_its_encoding_is_refused() -> None:
    column = pa.ListArray.from_arrays(pa.array([0, 10_000], pa.int32()), encoded(texts, 10_000))
    with refused(ProtocolError):
        list(canonical_slices(pa.record_batch({"a": column})))


def test_runs_within_lists_are_refused_before_they_are_decoded() -> None:
    column = pa.ListArray.from_arrays(pa.array([0, 300], pa.int32()), runs(texts, 100))
    with refused(ProtocolError):
        list(canonical_slices(pa.record_batch({"a": column})))


def overlapping(kind: pa.DataType, rows: int, columns: int) -> list[pa.Array]:
    """Return columns whose buffers overlap, each 8 bytes further, as in a hostile message."""
    body = pa.py_buffer(bytes(8 * (rows + columns)))
    return [
        pa.Array.from_buffers(kind, rows, [None, body.slice(8 * i, 8 * rows)])
        for i in range(columns)
    ]


@pytest.mark.parametrize("shift", [0, 1], ids=["the same bytes", "overlapping bytes"])
def test_shared_bytes_are_counted_for_each_column(shift: int) -> None:
    columns = overlapping(pa.int64(), SLICE_BYTES // 8, 100)
    columns = columns if shift else columns[:1] * 100
    batch = pa.RecordBatch.from_arrays(columns, [f"c{i}" for i in range(100)])
    pieces = list(canonical_slices(batch))
    assert sum(piece.num_rows for piece in pieces) == batch.num_rows
    assert all(piece.nbytes <= SLICE_BYTES for piece in pieces)


def test_a_row_of_columns_that_share_bytes_is_refused() -> None:
    """It is larger than the message, however that is counted."""
    body = pa.py_buffer(bytes(SLICE_BYTES))
    offsets = pa.py_buffer(struct.pack("<ii", 0, SLICE_BYTES - 100))
    columns = [
        pa.Array.from_buffers(pa.binary(), 1, [None, offsets, body.slice(i)]) for i in range(20)
    ]
    batch = pa.RecordBatch.from_arrays(columns, [f"c{i}" for i in range(20)])
    with refused(ProtocolError):
        list(canonical_slices(batch))


def test_undecoded_columns_that_share_bytes_are_refused() -> None:
    rows = SLICE_BYTES // 8
    children = overlapping(pa.int64(), rows, 20)
    union = pa.UnionArray.from_sparse(pa.array(bytes(rows), pa.int8()), children)
    with refused(ProtocolError):
        list(canonical_slices(pa.record_batch({"a": union})))
    alone = pa.UnionArray.from_sparse(pa.array(bytes(rows), pa.int8()), children[:1])
    (piece,) = canonical_slices(pa.record_batch({"a": alone}))
    assert piece.num_rows == rows


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_bytes_behind_the_last_offset_do_not_count(kind: pa.DataType) -> None:
    """A message gives the length of each of its buffers, in bytes."""
    plain = pa.array(["x" * 100] * 3, kind)
    validity, offsets, *data = plain.buffers()
    longer = pa.py_buffer(offsets.to_pybytes() + b"...")
    array = pa.Array.from_buffers(kind, len(plain), [validity, longer, *data])
    array.validate(full=True)
    assert list(row_bytes(array)) == list(row_bytes(plain))
    assert list(row_bytes(array.slice(1))) == list(row_bytes(plain))[1:]


values = st.lists(st.none() | st.text(max_size=30), max_size=20)


@settings(max_examples=some_of(200), derandomize=True)
@given(values, st.data())
def test_sizes_are_those_of_the_canonical_layout(some: list[Any], data: st.DataObject) -> None:
    plain = pa.array(some, pa.string())
    start = data.draw(st.integers(0, len(some)))
    ends = pa.array(range(1, len(some) + 1), pa.int32())
    expected = [4 + len((value or "").encode()) for value in some[start:]]
    for array in (
        plain,
        plain.cast(pa.large_string()),
        plain.cast(pa.string_view()),
        plain.dictionary_encode(),
        pa.RunEndEncodedArray.from_arrays(ends, plain),
    ):
        sizes = row_bytes(array.slice(start))
        for size, want, value in zip(sizes, expected, some[start:], strict=True):
            # Nulls of a dictionary have no size.
            assert size == 0 if value is None and size == 0 else int(size) == want
