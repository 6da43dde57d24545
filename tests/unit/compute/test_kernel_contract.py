"""The kernel in Rust and the reference place each row as the contract defines it.

A third implementation, below, is as short as the contract. Some hashes are written out, so that no
later change can move a key to another partition.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import product

import pyarrow as pa
import pytest
import xxhash
from hypothesis import example, given
from hypothesis import strategies as st

from mrflight.compute import kernel
from mrflight.errors import KeyTypeError
from tests.support.queries import key_arrays
from tests.support.suite.cases import cases
from tests.support.suite.messages import refused

NULL_HASH = 0x9E3779B97F4A7C15


pytestmark = pytest.mark.usefixtures("each_kernel")


def canonical_bytes(value: object) -> bytes:
    match value:
        case bool():
            return b"\x01" if value else b"\x00"
        case int():
            return (value % 2**64).to_bytes(8, "little")
        case float() if value != value:
            return (0x7FF8000000000000).to_bytes(8, "little")
        case float():
            return struct.pack("<d", value or 0.0)
        case Decimal():
            return int(value.scaleb(2)).to_bytes(16, "little", signed=True)
        case str():
            return value.encode()
        case bytes():
            return value
    raise AssertionError(f"no canonical bytes: {value!r}")


def key_hash(*key: object) -> int:
    hashes = [
        NULL_HASH if value is None else xxhash.xxh3_64_intdigest(canonical_bytes(value), seed=0)
        for value in key
    ]
    if len(hashes) == 1:
        return hashes[0]
    return xxhash.xxh3_64_intdigest(b"".join(h.to_bytes(8, "little") for h in hashes), seed=0)


KEYS = {
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "float64": (pa.float64(), st.floats()),
    "float32": (pa.float32(), st.floats(width=32)),
    "float16": (pa.float16(), st.floats(width=16)),
    "bool": (pa.bool_(), st.booleans()),
    "string": (pa.string(), st.text(max_size=400)),
    "string_view": (pa.string_view(), st.text(max_size=40)),
    "binary": (pa.binary(), st.binary(max_size=1200)),
    "decimal": (pa.decimal128(9, 2), st.decimals(-9999, 9999, places=2)),
}


@pytest.mark.slow_but("rust")
def test_hash_of_one_column() -> None:
    with cases() as case:
        for name, (type_, values) in KEYS.items():
            with case(name):
                _hash_of_columns(type_, values)


def _hash_of_columns(type_: pa.DataType, values: st.SearchStrategy[object]) -> None:
    @given(column=st.lists(st.none() | values, max_size=20))
    def checked(column: list[object]) -> None:
        hashes = kernel.hash_rows([pa.array(column, type_)])
        assert hashes.type == pa.uint64()
        assert hashes.to_pylist() == [key_hash(value) for value in column]

    checked()


@given(
    rows=st.lists(
        st.tuples(
            st.none() | st.integers(-(2**63), 2**63 - 1),
            st.none() | st.text(max_size=20),
            st.none() | st.floats(),
        ),
        max_size=20,
    ),
    columns=st.integers(2, 3),
    partitions=st.integers(1, 5000),
)
def test_hash_and_partition_of_several_columns(
    rows: list[tuple[object, ...]], columns: int, partitions: int
) -> None:
    types = [pa.int64(), pa.string(), pa.float64()]
    key = [pa.array([row[at] for row in rows], types[at]) for at in range(columns)]
    expected = [key_hash(*row[:columns]) for row in rows]
    assert kernel.hash_rows(key).to_pylist() == expected
    ids = kernel.partition_ids(key, partitions)
    assert ids.type == pa.int32()
    assert ids.to_pylist() == [h * partitions >> 64 for h in expected]


URL = "www.s000000001.com"


HASHES: list[tuple[list[pa.Array], int]] = [
    ([pa.array([1])], 0x2FBC593564DB792E),
    ([pa.array([-1])], 0x5111C7E47D784413),
    ([pa.array([2**64 - 1], pa.uint64())], 0x5111C7E47D784413),
    ([pa.array([1], pa.timestamp("us", "UTC"))], 0x2FBC593564DB792E),
    ([pa.array([1.5])], 0x2561A4889FF63458),
    ([pa.array([-0.0])], 0xC77B3ABB6F87ACD9),
    ([pa.array([float("nan")])], 0x0AA61DCFA381C167),
    ([pa.array([True])], 0xE12EF9D2EB86CEEB),
    ([pa.array([""])], 0x2D06800538D394C2),
    ([pa.array([URL])], 0x70586DD20173556D),
    ([pa.array([bytes(range(256)) * 4])], 0xA870F92984398D22),
    ([pa.array([Decimal("12.34")])], 0x9FB155BEB22EB33F),
    ([pa.array([Decimal("-0.01")])], 0x722A202F07A4B313),
    ([pa.array([None], pa.string())], NULL_HASH),
    ([pa.array([URL]), pa.array([1])], 0x57604A58E292A091),
    ([pa.array([None], pa.string()), pa.array([1])], 0x795448942E047BA0),
    ([pa.array([1]), pa.array([True]), pa.nulls(1)], 0x4DB6E2EF66FD6457),
]


def test_hashes_never_change() -> None:
    with cases() as case:
        for number, (key, expected) in enumerate(HASHES):
            with case(f"{number}: {[str(column.type) for column in key]}"):
                assert kernel.hash_rows(key).to_pylist() == [expected]


def test_partitions_never_change() -> None:
    sites = pa.array([f"www.s{site:09}.com" for site in range(12)])
    expected = [5, 8, 14, 3, 19, 8, 9, 12, 5, 7, 5, 2]
    assert kernel.partition_ids([sites], 20).to_pylist() == expected


STRINGS = ["", "a", None, "a", "twelve bytes", "thirteen bytes", None, "b" * 300, "a"]
INTEGERS = [5, None, 7, 5, 0, 127, None]
FIXED = [b"0123456789abcdef", None, b"0123456789ABCDEF", b"0123456789abcdef"]


def encodings(plain: pa.Array) -> Iterator[pa.Array]:
    """Yield the same values as dictionaries, as runs, and as each inside the other."""
    rows = range(len(plain))
    valid = plain.is_valid().to_pylist()
    for index_type in key_arrays.INDEX_TYPES:
        yield pa.DictionaryArray.from_arrays(pa.array(rows, index_type), plain)
        null_indices = pa.array([row if valid[row] else None for row in rows], index_type)
        yield pa.DictionaryArray.from_arrays(null_indices, plain)
    for end_type in key_arrays.RUN_END_TYPES:
        ends = pa.array([row + 1 for row in rows], end_type)
        yield pa.RunEndEncodedArray.from_arrays(ends, plain)
        yield pa.RunEndEncodedArray.from_arrays(
            ends, pa.DictionaryArray.from_arrays(pa.array(rows), plain)
        )


@pytest.mark.parametrize(
    ("values", "types"),
    [
        (STRINGS, [pa.string(), pa.large_string(), pa.string_view()]),
        (STRINGS, [pa.binary(), pa.large_binary(), pa.binary_view()]),
        (INTEGERS, key_arrays.INDEX_TYPES),
        (FIXED, [pa.binary(16), pa.binary(), pa.binary_view(), pa.uuid()]),
        ([1.5, None, -0.0, 0.0, float("nan")], [pa.float16(), pa.float32(), pa.float64()]),
        (
            [Decimal("1.25"), None, Decimal("-7.50")],
            [pa.decimal32(5, 2), pa.decimal64(5, 2), pa.decimal128(5, 2), pa.decimal256(5, 2)],
        ),
    ],
)
def test_equal_keys_are_equal_in_every_layout(
    values: list[object], types: list[pa.DataType]
) -> None:
    expected = [NULL_HASH if value is None else key_hash(value) for value in values]
    for type_ in types:
        storage = pa.array(values, type_.storage_type if type_ == pa.uuid() else type_)
        plain = type_.wrap_array(storage) if type_ == pa.uuid() else storage
        for array in [plain, *encodings(storage)]:
            hashes = kernel.hash_rows([array]).to_pylist()
            assert hashes == expected, array.type
            assert kernel.hash_rows([array[2:]]).to_pylist() == expected[2:], array.type


def test_times_are_integers_of_their_unit() -> None:
    plain = kernel.hash_rows([pa.array([1, None, 86400])])
    for type_ in (pa.time32("s"), pa.duration("ns"), pa.timestamp("ms", "UTC"), pa.date32()):
        array = pa.array([1, None, 86400], pa.int32() if type_.bit_width == 32 else pa.int64())
        assert kernel.hash_rows([array.cast(type_)]).equals(plain)


def test_equal_values_have_one_hash() -> None:
    nan = struct.unpack("<d", struct.pack("<Q", 0xFFF0000000000001))[0]
    zeros, nans = pa.array([0.0, -0.0]), pa.array([float("nan"), nan])
    for column in (zeros, nans, pa.array([2**64 - 1], pa.uint64()), pa.array([-1])):
        assert len(kernel.hash_rows([column]).unique()) == 1
    assert kernel.hash_rows([zeros])[0].as_py() == key_hash(0.0)


@given(data=st.data(), rows=st.integers(0, 60), partitions=st.integers(1, 30))
def test_every_row_is_in_one_partition(data: st.DataObject, rows: int, partitions: int) -> None:
    key = [data.draw(key_arrays.key_arrays(rows)) for _ in range(data.draw(st.integers(1, 3)))]
    order, offsets = kernel.order_by_partition(kernel.partition_ids(key, partitions), partitions)
    assert sorted(order.to_pylist()) == list(range(rows))
    assert len(offsets) == partitions + 1
    ids = kernel.partition_ids(key, partitions).to_pylist()
    for partition in range(partitions):
        placed = order[offsets[partition].as_py() : offsets[partition + 1].as_py()].to_pylist()
        assert placed == [row for row in range(rows) if ids[row] == partition]


@given(keys=st.lists(st.tuples(st.integers(0, 5), st.text("ab", max_size=2)), max_size=60))
def test_equal_keys_are_in_one_partition(keys: list[tuple[int, str]]) -> None:
    columns = [pa.array([key[0] for key in keys], pa.int16())]
    columns.append(pa.array([key[1] for key in keys], pa.string()).dictionary_encode())
    partitions = defaultdict(set)
    for key, partition in zip(keys, kernel.partition_ids(columns, 17).to_pylist(), strict=True):
        partitions[key].add(partition)
    assert all(len(seen) == 1 for seen in partitions.values())


@given(ids=st.lists(st.integers(0, 9), max_size=60))
@example(ids=[])
def test_order_is_a_stable_permutation(ids: list[int]) -> None:
    order, offsets = kernel.order_by_partition(pa.array(ids, pa.int32()), 10)
    assert (order.type, offsets.type) == (pa.uint32(), pa.int64())
    assert order.to_pylist() == sorted(range(len(ids)), key=ids.__getitem__)
    assert offsets.to_pylist() == [sum(i < partition for i in ids) for partition in range(11)]


@pytest.mark.parametrize(
    "ids",
    [
        [0, 1, None],
        [0, 5, 9],
        [0, 4, -1],
    ],
)
def test_ids_outside_the_partitions_are_refused(ids: list[int | None]) -> None:
    with refused(ValueError):
        kernel.order_by_partition(pa.array(ids, pa.int32()), 5)


def test_keys_without_rows() -> None:
    with cases() as case:
        for type_, columns in product(key_arrays.PLAIN_TYPES, (1, 3)):
            with case(f"{columns} of {type_}"):
                key = [pa.array([], type_)] * columns
                assert kernel.hash_rows(key) == pa.array([], pa.uint64())
                assert kernel.partition_ids(key, 3) == pa.array([], pa.int32())
                order, offsets = kernel.order_by_partition(kernel.partition_ids(key, 3), 3)
                assert (order.to_pylist(), offsets.to_pylist()) == ([], [0, 0, 0, 0])


@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        ([], ValueError, "at least one column"),
        ([pa.array([1]), pa.array([1, 2])], ValueError, "column 0 has 1 rows, column 1 has 2"),
        ([pa.array([[1]])], KeyTypeError, r"column 0 is of type list.*cannot be hashed"),
        ([pa.array([1]), pa.array([{"a": 1}])], KeyTypeError, "column 1 is of type struct"),
        ([pa.chunked_array([[1]])], TypeError, "ChunkedArray"),
    ],
)
def test_invalid_keys_are_refused(
    key: Sequence[pa.Array], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        kernel.partition_ids(key, 2)


@pytest.mark.parametrize("partitions", [0, -1, kernel.MAX_PLACED_PARTITIONS + 1, 2**70])
def test_numbers_of_partitions_out_of_range_are_refused(partitions: int) -> None:
    message = f"partitions must be 1 to .* not {partitions}"
    with pytest.raises(ValueError, match=message):
        kernel.partition_ids([pa.array([1])], partitions)
    with pytest.raises(ValueError, match=message):
        kernel.order_by_partition(pa.array([0], pa.int32()), partitions)


def broken() -> Iterator[pa.Array]:
    """Yield malformed arrays, which pyarrow can make and a peer may send."""
    data = pa.py_buffer(b"abc")

    def offsets(*offsets: int) -> pa.Buffer:
        return pa.py_buffer(struct.pack(f"<{len(offsets)}i", *offsets))

    yield pa.Array.from_buffers(pa.string(), 3, [None, offsets(0, 99, 2, 3), data])
    yield pa.Array.from_buffers(pa.binary(), 3, [None, offsets(0, 2, 1, 3), data])
    yield pa.Array.from_buffers(pa.binary(), 3, [None, offsets(0, -2, 2, 3), data])
    for view in (
        struct.pack("<iiii", 13, 0, 0, 1),
        struct.pack("<iiii", 13, 0, 1, 0),
        struct.pack("<iiii", 13, 0, 0, -1),
        struct.pack("<iiii", -1, 0, 0, 0),
        struct.pack("<iiii", 2**31 - 1, 0, -1, 2**31 - 1),
    ):
        buffers = [None, pa.py_buffer(view), pa.py_buffer(b"thirteen byte")]
        yield pa.Array.from_buffers(pa.binary_view(), 1, buffers)
    for index in (3, -1, 2**62):
        indices = pa.array([0, index])
        yield pa.DictionaryArray.from_arrays(indices, pa.array(["a", "b", "c"]), safe=False)
    for ends in ([2, 2, 4], [5, 3, 4], [-1, 2, 4], [3, 1, 4]):
        yield key_arrays.as_runs(pa.array(ends, pa.int32()), pa.array(["a", "b", "c"]), 4)


def test_malformed_columns_are_refused() -> None:
    # No array in a variable here: pytest would print it, and pyarrow crashes on printing it.
    with cases() as case:
        for number in range(len(list(broken()))):
            with case(number), pytest.raises(ValueError, match=r"."):
                kernel.hash_rows([list(broken())[number]])


def test_malformed_strings_have_no_ranks() -> None:
    with cases() as case:
        for number in range(3):
            with case(number), refused(ValueError):
                kernel.rank_bytes(list(broken())[number])
