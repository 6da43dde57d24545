"""Tests of packed splits: every part of every file once and in order, whatever the sizes are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrflight.sources.base import Split, pack_splits
from mrflight.sources.packed_reader import join_batches
from mrflight.sources.packing import OPEN_BYTES, pack, weight
from mrflight.sources.text_source import split_bytes_evenly
from mrflight.storage.store import FileVersion

MIB = 1 << 20


def files(sizes: Sequence[int], split_bytes: int = 64 * MIB) -> list[Split]:
    """The splits of files with these sizes."""
    return [
        split
        for number, size in enumerate(sizes)
        for split in split_bytes_evenly(f"{number:05}.csv", FileVersion(size), split_bytes)
    ]


def parts_of(splits: Sequence[Split]) -> list[Split]:
    return [piece for split in splits for piece in split.pieces]


sizes = st.lists(st.one_of(st.integers(0, 100), st.integers(0, 200 * MIB)), max_size=30)


@given(sizes, st.integers(1, 100 * MIB))
def test_every_part_is_in_one_pack_and_in_order(sizes: list[int], most: int) -> None:
    cut = files(sizes)
    packs = list(pack(cut, most))
    assert parts_of(packs) == cut
    for each in packs:
        paths = [piece.path for piece in each.pieces]
        assert len(paths) == len(set(paths))  # a file that was cut stays cut
        assert len(paths) == 1 or weight(each) <= most
        assert each.size_bytes == sum(piece.size_bytes for piece in each.pieces)
        assert (each.path, each.start) == (each.pieces[0].path, each.pieces[0].start)
    for one, following in pairwise(packs):
        next_part = following.pieces[0]
        assert weight(one) + weight(next_part) > most or one.pieces[-1].path == next_part.path


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=20), st.integers(1, 40))
def test_a_divided_pack_has_every_byte_once(sizes: list[int], count: int) -> None:
    packed = pack_splits(files(sizes))
    divided = packed.divide(count)
    assert 1 <= len(divided) <= count
    at = {piece.path: 0 for piece in packed.pieces}
    order = list(at)
    for piece in parts_of(divided):
        assert piece.start == at[piece.path]
        at[piece.path] = piece.stop
        assert order.index(piece.path) >= order.index(parts_of(divided)[0].path)
    assert list(at.values()) == sizes
    paths = [piece.path for piece in parts_of(divided)]
    assert paths == sorted(paths)


def test_a_pack_has_the_constants_that_all_its_parts_have() -> None:
    one, two = Split("a", 0, 1, 1, (("year", 1),)), Split("b", 0, 1, 1, (("year", 1),))
    other = Split("c", 0, 1, 1, (("year", 2),))
    assert pack_splits([one, two]).constants == (("year", 1),)
    assert pack_splits([one, other]).constants == ()
    assert pack_splits([other]) is other


def test_a_pack_names_its_files() -> None:
    packed = pack_splits(files([1] * 1200))
    assert packed.place == "1,200 files from 00000.csv to 01199.csv"
    assert packed.pieces[7].place == "00007.csv from 0"


@pytest.mark.parametrize(
    ("sizes", "most", "packed"),
    [
        ([], 8 * MIB, []),
        ([60 * MIB] * 8, 60 * MIB, [1] * 8),
        ([MIB - OPEN_BYTES] * 16, 8 * MIB, [8, 8]),
        ([60 * MIB, 10, 10, 10, 60 * MIB, 10], 8 * MIB, [1, 3, 1, 1]),
        ([0] * 130, 64 * OPEN_BYTES, [64, 64, 2]),
        ([100 * MIB], 64 * MIB, [1, 1]),
    ],
    ids=["no file", "large", "of 1 MiB", "mixed", "empty", "cut"],
)
def test_files_of_each_pack(sizes: list[int], most: int, packed: list[int]) -> None:
    assert [len(each.pieces) for each in pack(files(sizes), most)] == packed


TYPES = [
    pa.string(),
    pa.int64(),
    pa.dictionary(pa.int32(), pa.string()),
    pa.dictionary(pa.int8(), pa.string()),  # the values of two files may not fit into one
    pa.struct([("s", pa.dictionary(pa.int8(), pa.string()))]),
]


def batch_of(kind: pa.DataType, first: int, rows: int) -> pa.RecordBatch:
    texts = [f"{number:0>{1 + number % 3000}}" for number in range(first, first + rows)]
    column = pa.array(texts, pa.string())
    if pa.types.is_integer(kind):
        column = pa.array(range(first, first + rows), kind)
    elif pa.types.is_struct(kind):
        inner = kind.field(0)
        column = pa.StructArray.from_arrays(
            [column.dictionary_encode().cast(inner.type)], fields=[inner]
        )
    elif pa.types.is_dictionary(kind):
        column = column.dictionary_encode().cast(kind)
    return pa.record_batch([column], ["c"])


@given(
    st.lists(
        st.tuples(st.sampled_from(TYPES), st.integers(0, 3000), st.integers(1, 100)), max_size=30
    )
)
def test_joined_batches_have_the_rows_in_order_and_stay_small(
    drawn: list[tuple[pa.DataType, int, int]],
) -> None:
    batches = [batch_of(kind, first, rows) for kind, first, rows in drawn]
    joined = list(join_batches(batches))
    for batch in joined:
        batch.validate(full=True)
        assert batch.nbytes <= (4 << 20) + (256 << 10)
    rows = [(batch.schema.field(0).type, value) for batch in batches for value in values(batch)]
    assert rows == [(batch.schema.field(0).type, v) for batch in joined for v in values(batch)]
    if {kind for kind, _, _ in drawn} == {pa.int64()}:
        assert len(joined) == 1


def values(batch: pa.RecordBatch) -> list[object]:
    listed: list[object] = batch.column(0).to_pylist()
    return listed
