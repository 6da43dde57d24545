"""Every row goes to exactly one partition, in its order, and equal keys go together."""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mrflight.errors import ColumnNotFoundError, KeyTypeError, UserFunctionError
from mrflight.shuffle.layout import plain_batch, plain_schema
from mrflight.shuffle.partitioners import (
    FunctionPartitioner,
    HashPartitioner,
    Partitioner,
    RangePartitioner,
    RoundRobinPartitioner,
    check_sortable,
    choose_boundaries,
)
from tests.support.key_arrays import key_arrays

examples = settings(max_examples=100, derandomize=True)
few_examples = settings(max_examples=25, derandomize=True)

partition_counts = st.sampled_from([1, 2, 3, 7, 20, 1000])
texts = st.none() | st.text(max_size=3)
small_ints = st.none() | st.integers(-128, 127)
floats = st.none() | st.sampled_from([-0.0, 0.0, math.nan, 1.5, -2.0, math.inf, -math.inf])


def batch_of(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def placed(partitioner: Partitioner, batch: pa.RecordBatch, partitions: int) -> list[int]:
    """The partition of each row, once all have shown to be partitions."""
    ids = partitioner.ids(batch)
    assert (ids.type, len(ids), ids.null_count) == (pa.int32(), batch.num_rows, 0)
    of_row: list[int] = ids.to_pylist()
    assert all(0 <= partition < partitions for partition in of_row)
    return of_row


def layouts(values: Sequence[str | None]) -> list[pa.Array]:
    """The same strings, or their bytes, in every layout that Arrow has."""
    plain = pa.array(values, pa.string())
    ends = pa.array(np.arange(1, len(values) + 1, dtype=np.int32))
    return [
        plain,
        plain.cast(pa.large_string()),
        plain.cast(pa.string_view()),
        plain.cast(pa.binary()),
        plain.cast(pa.large_binary()),
        plain.cast(pa.binary()).cast(pa.binary_view()),
        plain.dictionary_encode(),
        plain.dictionary_encode("encode"),
        plain.cast(pa.large_string()).dictionary_encode(),
        pa.RunEndEncodedArray.from_arrays(ends, plain),
        pa.concat_arrays([pa.array(["x", None]), plain]).slice(2),
    ]


# Hash


@examples
@given(st.data(), st.integers(0, 30), st.integers(1, 3), partition_counts)
def test_hash_places_every_row_of_any_key(
    data: st.DataObject, rows: int, columns: int, partitions: int
) -> None:
    batch = batch_of(**{f"k{i}": data.draw(key_arrays(rows)) for i in range(columns)})
    partitioner = HashPartitioner(tuple(batch.schema.names), partitions)
    placed(partitioner, batch, partitions)


@examples
@given(st.lists(st.tuples(texts, small_ints, floats), min_size=1), partition_counts)
def test_hash_brings_equal_keys_together(
    rows: list[tuple[str | None, int | None, float | None]], partitions: int
) -> None:
    a, b, c = (list(column) for column in zip(*rows, strict=True))
    batch = batch_of(a=pa.array(a, pa.string()), b=pa.array(b, pa.int8()), c=pa.array(c))
    found: dict[object, int] = {}
    of_row = placed(HashPartitioner(("a", "b", "c"), partitions), batch, partitions)
    for (text, number, value), partition in zip(rows, of_row, strict=True):
        key = (text, number, "nan" if value is not None and math.isnan(value) else value)
        assert found.setdefault(key, partition) == partition


@examples
@given(st.lists(texts, min_size=1), partition_counts)
def test_hash_places_strings_alike_in_every_layout(
    values: list[str | None], partitions: int
) -> None:
    partitioner = HashPartitioner(("k",), partitions)
    expected, *others = (
        placed(partitioner, batch_of(k=array), partitions) for array in layouts(values)
    )
    assert all(other == expected for other in others)


@examples
@given(st.lists(small_ints, min_size=1), partition_counts)
def test_hash_places_integers_alike_whatever_their_width(
    values: list[int | None], partitions: int
) -> None:
    partitioner = HashPartitioner(("k",), partitions)

    def of_type(name: str) -> list[int]:
        return placed(partitioner, batch_of(k=pa.array(values, name)), partitions)

    expected = of_type("int64")
    assert all(of_type(f"int{bits}") == expected for bits in (8, 16, 32))
    if all(value is None or value >= 0 for value in values):
        assert all(of_type(f"uint{bits}") == expected for bits in (8, 16, 32, 64))


@examples
@given(st.lists(floats, min_size=1), partition_counts)
def test_hash_places_floats_alike_whatever_their_width(
    values: list[float | None], partitions: int
) -> None:
    partitioner = HashPartitioner(("k",), partitions)
    expected, *others = (
        placed(partitioner, batch_of(k=pa.array(values, name)), partitions)
        for name in ("float64", "float32", "float16")
    )
    assert all(other == expected for other in others)


def test_hash_has_one_zero_and_one_nan() -> None:
    odd_nan = np.array([0xFFF8000000000001], np.uint64).view(np.float64)[0]
    values = pa.array(np.array([0.0, -0.0, math.nan, -math.nan, odd_nan]))
    a, b, c, d, e = placed(HashPartitioner(("k",), 1000), batch_of(k=values), 1000)
    assert a == b
    assert c == d == e


def test_hash_refuses_a_key_that_is_not_there_or_has_no_hash() -> None:
    batch = batch_of(a=pa.array([[1]]))
    with pytest.raises(ColumnNotFoundError, match="'b'"):
        HashPartitioner(("b",), 2).ids(batch)
    with pytest.raises(KeyTypeError, match="'a'"):
        HashPartitioner(("a",), 2).ids(batch)


# Round robin


@examples
@given(st.integers(0, 200), partition_counts, st.data())
def test_round_robin_deals_rows_out_in_turn(
    rows: int, partitions: int, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, partitions - 1))
    batch = batch_of(k=pa.nulls(rows))
    of_row = placed(RoundRobinPartitioner(partitions, first), batch, partitions)
    assert of_row == [(first + row) % partitions for row in range(rows)]
    counts = [of_row.count(partition) for partition in range(partitions)]
    assert max(counts) - min(counts) <= 1


def test_round_robin_goes_on_where_the_last_batch_ended() -> None:
    partitioner = RoundRobinPartitioner(20, first=18)
    ids = [partitioner.ids(batch_of(k=pa.nulls(7))).to_pylist() for _ in range(3)]
    assert ids == [[18, 19, 0, 1, 2, 3, 4], list(range(5, 12)), list(range(12, 19))]


# Range


def order_of(key: Sequence[Any]) -> tuple[tuple[int, Any], ...]:
    """What sorts as Arrow does: NaN behind numbers, null behind everything."""

    def place(value: Any) -> tuple[int, Any]:
        if value is None:
            return (2, 0)
        return (1, 0) if isinstance(value, float) and math.isnan(value) else (0, value)

    return tuple(place(value) for value in key)


def assert_ranges(keys: list[tuple[Any, ...]], of_row: list[int]) -> None:
    """Rows in order of their keys are in order of their partitions, and equal keys in one."""
    ordered = sorted(
        (order_of(key), partition) for key, partition in zip(keys, of_row, strict=True)
    )
    partitions = [partition for _, partition in ordered]
    assert partitions == sorted(partitions)
    assert len(dict(ordered)) == len(set(ordered))


COLUMNS = {
    "int": (pa.int64(), st.none() | st.integers(-3, 3)),
    "float": (pa.float64(), floats),
    "text": (pa.string(), st.none() | st.text("ab", max_size=2)),
}


@st.composite
def keyed_rows(draw: st.DrawFn) -> tuple[pa.Schema, list[tuple[Any, ...]]]:
    """Rows of one to three columns of few distinct values, so that many are equal."""
    kinds = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=3))
    rows = draw(st.lists(st.tuples(*(COLUMNS[kind][1] for kind in kinds)), max_size=40))
    return pa.schema([(f"k{i}", COLUMNS[kind][0]) for i, kind in enumerate(kinds)]), rows


def table_of(schema: pa.Schema, rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = [
        pa.array([row[i] for row in rows], field.type, from_pandas=False)
        for i, field in enumerate(schema)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def batch_of_rows(schema: pa.Schema, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    batches = table_of(schema, rows).combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema)


@settings(max_examples=300, derandomize=True)
@given(keyed_rows(), st.data(), st.integers(1, 8))
def test_ranges_in_order_hold_keys_in_order(
    drawn: tuple[pa.Schema, list[tuple[Any, ...]]], data: st.DataObject, partitions: int
) -> None:
    schema, rows = drawn
    sampled = data.draw(st.lists(st.sampled_from(rows), max_size=30)) if rows else []
    boundaries = choose_boundaries(table_of(schema, sampled), schema.names, partitions)
    partitioner = RangePartitioner(tuple(schema.names), boundaries, partitions)
    assert_ranges(rows, placed(partitioner, batch_of_rows(schema, rows), partitions))


@settings(max_examples=200, derandomize=True)
@given(keyed_rows(), st.integers(1, 50))
def test_boundaries_are_sorted_and_none_is_there_twice(
    drawn: tuple[pa.Schema, list[tuple[Any, ...]]], partitions: int
) -> None:
    schema, rows = drawn
    boundaries = choose_boundaries(table_of(schema, rows), schema.names, partitions)
    assert boundaries.schema == schema
    assert boundaries.num_rows <= partitions - 1
    keys = [order_of(tuple(row.values())) for row in boundaries.to_pylist()]
    assert all(before < after for before, after in pairwise(keys))


def test_every_partition_is_about_even_where_keys_are_many() -> None:
    keys = pa.table({"k": np.random.default_rng(1).permutation(10_000)})
    boundaries = choose_boundaries(keys, ["k"], 7)
    batch = keys.to_batches()[0]
    of_row = placed(RangePartitioner(("k",), boundaries, 7), batch, 7)
    counts = np.bincount(of_row, minlength=7)
    assert counts.max() - counts.min() <= 1


def test_a_row_on_a_boundary_begins_the_next_partition() -> None:
    boundaries = batch_of(k=pa.array([10, 20]))
    batch = batch_of(k=pa.array([9, 10, 11, 19, 20, 21, None]))
    partitioner = RangePartitioner(("k",), boundaries, 3)
    assert placed(partitioner, batch, 3) == [0, 1, 1, 1, 2, 2, 2]


def test_fewer_keys_than_partitions_leave_partitions_empty() -> None:
    keys = pa.table({"k": ["a", "b"] * 50})
    boundaries = choose_boundaries(keys, ["k"], 10)
    of_row = placed(RangePartitioner(("k",), boundaries, 10), keys.to_batches()[0], 10)
    assert len(set(of_row)) == 2
    assert of_row[:2] * 50 == of_row


def test_without_a_sample_all_rows_go_to_the_first_partition() -> None:
    empty = pa.table({"k": pa.array([], pa.int64())})
    boundaries = choose_boundaries(empty, ["k"], 4)
    assert boundaries.num_rows == 0
    batch = batch_of(k=pa.array([3, None, -1]))
    assert placed(RangePartitioner(("k",), boundaries, 4), batch, 4) == [0, 0, 0]


@few_examples
@given(st.lists(texts, min_size=1, max_size=20), st.integers(1, 5))
def test_ranges_hold_strings_alike_in_every_layout(
    values: list[str | None], partitions: int
) -> None:
    assume(any(value is not None for value in values))
    boundaries = choose_boundaries(pa.table({"k": pa.array(values)}), ["k"], partitions)
    partitioner = RangePartitioner(("k",), boundaries, partitions)
    texts_only = [array for array in layouts(values) if "binary" not in str(array.type)]
    expected, *others = (
        placed(partitioner, batch_of(k=array), partitions)
        for array in texts_only
        if not pa.types.is_run_end_encoded(array.type)
    )
    assert all(other == expected for other in others)


def test_run_ends_are_a_range_key_like_the_values_in_them() -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["a", "b"]))
    boundaries = batch_of(k=pa.array(["b"]))
    partitioner = RangePartitioner(("k",), boundaries, 2)
    assert placed(partitioner, batch_of(k=runs), 2) == [0, 0, 1]


def test_integers_of_another_width_than_the_boundaries_find_their_range() -> None:
    boundaries = batch_of(k=pa.array([0, 2**40]))
    partitioner = RangePartitioner(("k",), boundaries, 3)
    batch = batch_of(k=pa.array([-1, 0, 1, None], pa.int8()))
    assert placed(partitioner, batch, 3) == [0, 1, 1, 2]


def numbers(type_: pa.DataType, *values: int) -> pa.Array:
    """Times from their numbers, which Python's own types may not hold."""
    width = pa.int32() if type_.bit_width == 32 else pa.int64()
    return pa.array(values, width).view(type_)


SORTABLE = [
    pa.array([False, True]),
    pa.array([-1, 1], pa.int8()),
    pa.array([1, 2**64 - 1], pa.uint64()),
    pa.array([-1.5, 1.5], pa.float16()),
    pa.array([-1.5, 1.5], pa.float32()),
    pa.array(["a", "b"]),
    pa.array(["a", "b"], pa.string_view()),
    pa.array(["a", "b"]).dictionary_encode(),
    pa.array([b"a", b"b"]),
    pa.array([b"aa", b"ab"], pa.binary(2)),
    numbers(pa.date32(), 0, 1),
    numbers(pa.date32(), 0, 2**30),
    numbers(pa.date64(), 0, 86_400_000),
    numbers(pa.time32("ms"), 0, 1),
    numbers(pa.time64("ns"), 1, 2),
    numbers(pa.timestamp("s"), 0, 10**12),
    numbers(pa.timestamp("us", "Europe/Rome"), 0, 1),
    numbers(pa.timestamp("ns"), 1, 2),
    numbers(pa.duration("s"), 0, 10**17),
    numbers(pa.duration("ns"), 1, 2),
    pa.array([Decimal("-1.25"), Decimal("1.25")], pa.decimal32(5, 2)),
    pa.array([Decimal("-1.25"), Decimal("1.25")], pa.decimal64(12, 2)),
    pa.array([Decimal("-1.25"), Decimal("1.25")], pa.decimal128(20, 2)),
    pa.array([Decimal("-1.25"), Decimal("1.25")], pa.decimal256(50, 2)),
]


@pytest.mark.parametrize("keys", SORTABLE, ids=lambda keys: str(keys.type))
def test_every_type_that_is_let_through_is_sampled_and_cut(keys: pa.Array) -> None:
    batch = batch_of(k=pa.concat_arrays([keys, pa.nulls(1, keys.type), keys]))
    check_sortable(batch.schema, ["k"])
    plain = plain_batch(batch, plain_schema(batch.schema))
    boundaries = choose_boundaries(pa.Table.from_batches([plain]), ["k"], 5)
    assert boundaries.num_rows == 3  # all keys but no repetition: the least is a cut as well
    of_row = placed(RangePartitioner(("k",), boundaries, 5), batch, 5)
    assert of_row[0] < of_row[1] < of_row[2]
    assert of_row[3:] == of_row[:2]


@pytest.mark.parametrize(
    "type_",
    [pa.null(), pa.list_(pa.int8()), pa.struct({"x": pa.int8()}), pa.month_day_nano_interval()],
    ids=str,
)
def test_types_without_an_order_are_refused(type_: pa.DataType) -> None:
    with pytest.raises(KeyTypeError, match="'k'"):
        check_sortable(pa.schema({"k": type_}), ["k"])


def test_a_range_key_that_is_not_there_is_refused() -> None:
    with pytest.raises(ColumnNotFoundError, match="'x'"):
        check_sortable(pa.schema({"k": pa.int8()}), ["x"])


# A user's own


def users(answer: object) -> FunctionPartitioner:
    return FunctionPartitioner(lambda batch, key, partitions: answer, "m:place", ("k",), 3)


def test_a_users_partitioner_is_asked_and_followed() -> None:
    def place(batch: pa.RecordBatch, key: Sequence[str], partitions: int) -> pa.Array:
        assert (tuple(key), partitions) == (("k",), 3)
        return pa.array([value % partitions for value in batch.column("k").to_pylist()])

    batch = batch_of(k=pa.array([5, 4, 3, 2]))
    assert placed(FunctionPartitioner(place, "m:place", ("k",), 3), batch, 3) == [2, 1, 0, 2]


@examples
@given(st.lists(st.integers(0, 2)), st.sampled_from(["int8", "int32", "int64", "uint64"]))
def test_a_users_partitioner_may_answer_any_integers(ids: list[int], type_: str) -> None:
    batch = batch_of(k=pa.nulls(len(ids)))
    assert placed(users(pa.array(ids, type_)), batch, 3) == ids


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (None, "it returned NoneType"),
        ([0, 1], "it returned list"),
        (np.array([0, 1]), "it returned ndarray"),
        (pa.chunked_array([[0, 1]]), "it returned ChunkedArray"),
        (pa.array([0]), "for 2 rows"),
        (pa.array([0, 1, 2]), "for 2 rows"),
        (pa.array([0, 3]), "row 1 is placed in partition 3, which does not exist"),
        (pa.array([-1, 0]), "row 0 is placed in partition -1, which does not exist"),
        (pa.array([0, 2**40]), "not in range"),
        (pa.array([0, None]), "row 1 has no partition: its id is null"),
        (pa.nulls(2), "null"),
        (pa.array([0.5, 1.0]), ""),
        (pa.array(["a", "b"]), ""),
        (pa.array([[0], [1]]), ""),
    ],
    ids=str,
)
def test_a_users_partitioner_that_answers_wrongly_is_named(answer: object, says: str) -> None:
    with pytest.raises(UserFunctionError) as refused:
        users(answer).ids(batch_of(k=pa.array([1, 2])))
    assert str(refused.value).startswith("the partitioner m:place")
    assert says in str(refused.value)


@pytest.mark.parametrize("answer", [pa.array(["0", "1"]), pa.array([b"0", b"1"])], ids=str)
def test_a_users_partitioner_must_answer_numbers(answer: pa.Array) -> None:
    with pytest.raises(UserFunctionError, match="m:place"):
        users(answer).ids(batch_of(k=pa.array([1, 2])))


@pytest.mark.parametrize("error", [KeyError("no such site"), SystemExit("no such site")], ids=repr)
def test_a_users_partitioner_that_raises_is_named(error: BaseException) -> None:
    def place(batch: pa.RecordBatch, key: Sequence[str], partitions: int) -> pa.Array:
        raise error

    with pytest.raises(UserFunctionError, match=r"(?s)m:place.*no such site"):
        FunctionPartitioner(place, "m:place", ("k",), 3).ids(batch_of(k=pa.array([1])))


@pytest.mark.parametrize(
    "partitioner",
    [
        HashPartitioner(("k",), 3),
        RoundRobinPartitioner(3, 1),
        RangePartitioner(("k",), batch_of(k=pa.array([2])), 3),
    ],
    ids=lambda partitioner: type(partitioner).__name__,
)
def test_partitioners_travel(partitioner: Partitioner) -> None:
    batch = batch_of(k=pa.array([3, 1, 2]))
    again = pickle.loads(pickle.dumps(partitioner))
    assert placed(again, batch, 3) == placed(partitioner, batch, 3)


@given(
    st.lists(
        st.lists(st.sampled_from([1, 1, 1, 1, 2, 3, None]), max_size=30), min_size=1, max_size=8
    ),
    st.integers(1, 12),
)
def test_a_heavy_key_is_spread_and_the_order_of_its_rows_is_kept(
    maps: list[list[int | None]], partitions: int
) -> None:
    """Partitions in order, each stably sorted, are the stably sorted input."""
    keys = pa.table({"k": pa.array([key for rows in maps for key in rows], pa.int64())})
    boundaries = choose_boundaries(keys, ["k"], partitions, repeats=True)
    held: list[list[tuple[int | None, int]]] = [[] for _ in range(partitions)]
    number = 0
    for position, rows in enumerate(maps):
        partitioner = RangePartitioner(("k",), boundaries, partitions, position / len(maps))
        batch = pa.record_batch({"k": pa.array(rows, pa.int64())})
        for key, partition in zip(rows, partitioner.ids(batch).to_pylist(), strict=True):
            held[partition].append((key, number))
            number += 1

    def order(row: tuple[int | None, int]) -> tuple[bool, int, int]:
        return row[0] is None, row[0] or 0, row[1]

    found = [row for rows in held for row in sorted(rows, key=order)]
    assert found == sorted(found, key=order)


def test_a_heavy_key_has_the_ranges_to_itself_that_it_fills() -> None:
    keys = pa.table({"k": [0] * 10 + [1] * 70 + [2] * 20})
    boundaries = choose_boundaries(keys, ["k"], 10, repeats=True)
    assert boundaries["k"].to_pylist() == [1] * 7 + [2, 2]
    batch = pa.record_batch({"k": [0, 1, 2]})
    placed = [
        RangePartitioner(("k",), boundaries, 10, place / 7).ids(batch).to_pylist()
        for place in range(7)
    ]
    assert placed == [[0, 1 + place, 8 if place < 4 else 9] for place in range(7)]
