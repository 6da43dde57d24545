"""Keys of every type with an order can be partitioned by range, and others are refused."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mrflight.compute.layout import canonical_schema, to_canonical
from mrflight.compute.sorting import check_sortable
from mrflight.config.sort_key import SortKey
from mrflight.errors import ColumnNotFoundError, KeyTypeError
from mrflight.shuffle.client.range_partitioner import RangePartitioner, choose_boundaries
from tests.support.queries.partitioning import batch_of, few_examples, layouts, placed, texts

K = (SortKey("k"),)


@few_examples
@given(st.lists(texts, min_size=1, max_size=20), st.integers(1, 5))
def test_strings_have_the_same_ranges_in_every_layout(
    values: list[str | None], partitions: int
) -> None:
    assume(any(value is not None for value in values))
    boundaries = choose_boundaries(pa.table({"k": pa.array(values)}), K, partitions)
    partitioner = RangePartitioner(K, boundaries, partitions)
    texts_only = [array for array in layouts(values) if "binary" not in str(array.type)]
    expected, *others = (
        placed(partitioner, batch_of(k=array), partitions)
        for array in texts_only
        if not pa.types.is_run_end_encoded(array.type)
    )
    assert all(other == expected for other in others)


def test_run_end_encoded_keys_have_the_ranges_of_their_values() -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["a", "b"]))
    boundaries = batch_of(k=pa.array(["b"]))
    partitioner = RangePartitioner(K, boundaries, 2)
    assert placed(partitioner, batch_of(k=runs), 2) == [0, 0, 1]


def test_integers_of_another_width_than_the_boundaries_find_their_range() -> None:
    boundaries = batch_of(k=pa.array([0, 2**40]))
    partitioner = RangePartitioner(K, boundaries, 3)
    batch = batch_of(k=pa.array([-1, 0, 1, None], pa.int8()))
    assert placed(partitioner, batch, 3) == [0, 1, 1, 2]


def numbers(type_: pa.DataType, *values: int) -> pa.Array:
    """Return times from their numbers, because Python's types cannot hold all of them."""
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
def test_every_accepted_type_is_sampled_and_partitioned(keys: pa.Array) -> None:
    batch = batch_of(k=pa.concat_arrays([keys, pa.nulls(1, keys.type), keys]))
    check_sortable(batch.schema, K)
    plain = to_canonical(batch, canonical_schema(batch.schema))
    boundaries = choose_boundaries(pa.Table.from_batches([plain]), K, 5)
    assert boundaries.num_rows == 3  # all keys but no repetition: the least is a cut as well
    of_row = placed(RangePartitioner(K, boundaries, 5), batch, 5)
    assert of_row[0] < of_row[1] < of_row[2]
    assert of_row[3:] == of_row[:2]


@pytest.mark.parametrize(
    "type_",
    [pa.null(), pa.list_(pa.int8()), pa.struct({"x": pa.int8()}), pa.month_day_nano_interval()],
    ids=str,
)
def test_types_without_an_order_are_refused(type_: pa.DataType) -> None:
    with pytest.raises(KeyTypeError, match="'k'"):
        check_sortable(pa.schema({"k": type_}), K)


def test_a_missing_range_key_is_refused() -> None:
    with pytest.raises(ColumnNotFoundError, match="'x'"):
        check_sortable(pa.schema({"k": pa.int8()}), [SortKey("x")])
