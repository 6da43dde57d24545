"""Encoded columns are decoded to what they were; an encoding that no writer uses is refused."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.compute.arrays import MAX_LOW_CARDINALITY, MAX_SHORT_BYTES, is_short_dictionary
from mrflight.compute.layout import canonical_schema, decode_dictionaries, to_canonical
from mrflight.errors import CorruptBlockError, SchemaMismatchError
from mrflight.shuffle.wire.block import Block, decode_block, encode_block, ipc_options
from mrflight.shuffle.wire.encoder import WireEncoder
from tests.support.suite.examples import some_of
from tests.support.suite.messages import refused

PLAIN = ipc_options("none")
KIND = pa.decimal128(18, 3)
LARGEST = 10**18 - 1
ENOUGH = 256
"""The rows of a block that is encoded."""

words = st.lists(st.none() | st.text(max_size=8), min_size=1, max_size=40)
numbers = st.lists(st.none() | st.integers(-LARGEST, LARGEST), min_size=1, max_size=40)


def decimals(values: list[int | None]) -> pa.Array:
    return pa.array([None if v is None else Decimal(v).scaleb(-3) for v in values], KIND)


def times(column: pa.Array, rows: int) -> pa.Array:
    """Return the column repeated to a number of rows."""
    return column.take(pa.array(np.arange(rows) % len(column)))


def sent(*batches: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Return the batches after one writer has encoded them, with dictionaries decoded."""
    return [decode_dictionaries(batch) for batch in sent_encoded(*batches)]


def sent_encoded(*batches: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Return the batches after one writer has encoded them, as `decode_block` gives them."""
    encoder = WireEncoder(map_id=0)
    return [decode_block(encoder.block(encoded(encoder, batch))) for batch in batches]


def encoded(encoder: WireEncoder, batch: pa.RecordBatch) -> pa.RecordBatch:
    encoder.check(batch.schema)
    return encoder.encode(batch, before_change=lambda: None)


@settings(max_examples=some_of(200), deadline=None)
@given(words, numbers, st.integers(0, 9), st.sampled_from([1, ENOUGH, 1500]))
def test_rows_come_back_as_they_were(
    texts: list[str | None], digits: list[int | None], start: int, count: int
) -> None:
    rows = count + start
    text = times(pa.array(texts, pa.string()).dictionary_encode(), rows)
    batch = pa.record_batch({"text": text, "n": times(decimals(digits), rows)}).slice(start)
    plain = to_canonical(batch, canonical_schema(batch.schema))
    (found,) = sent_encoded(batch)
    assert pa.types.is_dictionary(found.schema.field("text").type) == (count >= ENOUGH)
    assert decode_dictionaries(found).equals(plain, check_metadata=True)


BITS = {getattr(pa, f"{sign}int{n}")(): n for sign in ("", "u") for n in (8, 16, 32, 64)}
"""The bits of integer types; other types of these tests have fewer than 18 digits."""
KINDS = [*BITS, pa.date32(), KIND, pa.timestamp("us"), pa.float64(), pa.decimal128(19)]


@st.composite
def columns_of_numbers(draw: st.DrawFn) -> list[pa.Array]:
    """Draw columns of one type, each with values below some power of two."""
    kind = draw(st.sampled_from(KINDS))
    return [draw(numbers_of(kind, draw(st.integers(1, BITS.get(kind, 31))))) for _ in range(3)]


def numbers_of(kind: pa.DataType, bits: int) -> st.SearchStrategy[pa.Array]:
    is_signed = not pa.types.is_unsigned_integer(kind)
    least, most = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else (0, 2**bits - 1)
    values = st.lists(st.none() | st.integers(least, most), min_size=1, max_size=30)
    if kind == KIND:
        return values.map(decimals)
    if kind == pa.date32():
        return values.map(lambda days: pa.array(days, pa.int32()).view(kind))
    return values.map(lambda found: pa.array(found, kind))


@settings(max_examples=some_of(300), deadline=None)
@given(columns_of_numbers(), st.integers(0, 5))
def test_later_numbers_may_need_more_bytes(columns: list[pa.Array], start: int) -> None:
    batches = [
        pa.record_batch({"n": times(column, ENOUGH + start)}).slice(start) for column in columns
    ]
    for batch, decoded in zip(batches, sent(*batches), strict=True):
        assert decoded.equals(batch)


@pytest.mark.parametrize(
    ("column", "bytes_of_a_row"),
    [
        (pa.array(["yes", "no"]).dictionary_encode(), 1),
        (decimals([1, -LARGEST]), 8),
        (decimals([1, -999]), 2),
        (pa.array([0, 127]), 1),
        (pa.array([0, 128]), 2),
        (pa.array([0, 255], pa.uint64()), 1),
        (pa.array([-(2**31), 2**31 - 1]), 4),
        (pa.array([-(2**31), 2**31]), 8),
        (pa.array([8035, 10591], pa.int32()).view(pa.date32()), 2),
        (pa.array([1.0]), 8),
    ],
    ids=str,
)
def test_values_take_as_few_bytes_as_the_largest_needs(
    column: pa.Array, bytes_of_a_row: int
) -> None:
    batch = pa.record_batch({"c": times(column, 100_000)})
    encoder = WireEncoder(map_id=0)
    size = encoder.block(encoded(encoder, batch)).body.size
    assert 0 < size - 100_000 * bytes_of_a_row < 1000


def test_batches_may_have_different_dictionaries_or_none() -> None:
    texts = [["a", "b"], ["b", "c", None], ["c", "a"], ["d", "e", "d"]]
    columns = [times(pa.array(each), ENOUGH) for each in texts]
    twice = pa.DictionaryArray.from_arrays(times(pa.array([0, 1, 2]), ENOUGH), pa.array(texts[3]))
    encoded = [columns[0].dictionary_encode(), columns[1].dictionary_encode(), columns[2], twice]
    decoded = sent(*(pa.record_batch({"text": each}) for each in encoded))
    assert [each.column(0) for each in decoded] == columns


def dictionary(value: pa.Array) -> pa.Array:
    return times(value, ENOUGH).dictionary_encode()


def run_ends(value: pa.Array) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array([ENOUGH], pa.int32()), value)


@pytest.mark.parametrize("encoded", [dictionary, run_ends])
def test_later_batches_may_have_other_layouts(encoded: Callable[[pa.Array], pa.Array]) -> None:
    text, zero = pa.array(["a"]), decimals([0])
    first = pa.record_batch({"text": dictionary(text), "n": times(zero, ENOUGH)})
    later = pa.record_batch([encoded(text), encoded(zero)], names=["text", "n"])
    for decoded in sent(first, later):
        assert decoded.equals(to_canonical(first, canonical_schema(first.schema)))


def test_runs_are_decoded_once() -> None:
    """Behind the nulls of decoded runs is whatever was in memory, different each time."""
    days = pa.array([None, 1] * ENOUGH, pa.int32()).view(pa.date32())
    ends = pa.array(range(1, len(days) + 1), pa.int32())
    batch = pa.record_batch({"day": pa.RunEndEncodedArray.from_arrays(ends, days)})
    for _ in range(20):
        rows = encoded(WireEncoder(map_id=0), batch)  # decoding twice would break its encodings
        freed = [pa.allocate_buffer(len(days) * 4) for _ in range(50)]
        for buffer in freed:
            memoryview(buffer).cast("B")[:] = b"\x7f" * buffer.size
        del freed, buffer
        assert rows.num_rows == len(days)


@pytest.mark.parametrize("metadata", [None, {"a": "b"}])
def test_rows_without_columns_keep_their_number(metadata: dict[str, str] | None) -> None:
    batch = pa.record_batch({"n": range(ENOUGH)}).select([]).replace_schema_metadata(metadata)
    assert [rows.num_rows for rows in sent(batch, batch)] == [ENOUGH] * 2


def test_few_rows_are_not_encoded() -> None:
    batch = pa.record_batch(
        {"text": pa.array(["a", "b"]).dictionary_encode(), "n": decimals([1, 2])}
    )
    encoder = WireEncoder(map_id=0)
    block = encoder.block(encoded(encoder, batch))
    canonical = to_canonical(batch, canonical_schema(batch.schema))
    assert block == encode_block([canonical], PLAIN)


@pytest.mark.parametrize(
    "dictionary",
    [
        pa.array([str(n) for n in range(MAX_LOW_CARDINALITY + 1)]),
        pa.array(["x" * (MAX_SHORT_BYTES + 1)]),
        pa.array(["ä" * (MAX_SHORT_BYTES // 2 + 1)]),
        pa.array(["a", None]),
        pa.array([b"a"]),
    ],
    ids=["many", "long", "long in bytes", "null", "binary"],
)
def test_other_dictionaries_are_decoded(dictionary: pa.Array) -> None:
    assert not is_short_dictionary(dictionary)
    column = pa.DictionaryArray.from_arrays(pa.array([0] * ENOUGH, pa.int32()), dictionary)
    batch = pa.record_batch({"c": column})
    encoder = WireEncoder(map_id=0)
    encoded(encoder, batch)
    assert encoder.buffer_schema == canonical_schema(batch.schema)


def test_encodings_change_after_what_they_encoded_was_sent() -> None:
    few = pa.record_batch({"text": pa.array(["a"] * ENOUGH).dictionary_encode()})
    many = pa.array([str(n) for n in range(MAX_LOW_CARDINALITY)]).dictionary_encode()
    encoder = WireEncoder(map_id=0)
    schemas: list[pa.Schema] = []
    for batch in (few, few, pa.record_batch({"text": many})):
        encoder.check(batch.schema)
        rows = encoder.encode(batch, before_change=lambda: schemas.append(encoder.buffer_schema))
    assert schemas == [pa.schema([("text", pa.uint8())])]
    assert rows == pa.record_batch({"text": many.dictionary_decode()})


def test_a_batch_of_other_columns_is_refused() -> None:
    encoder = WireEncoder(map_id=3)
    encoder.check(pa.schema([("n", pa.int64())]))
    with refused(SchemaMismatchError):
        encoder.check(pa.schema([("n", pa.string())]))


def test_a_decimal_with_more_digits_than_its_type_is_not_truncated() -> None:
    """Arrow accepts it until it is validated."""
    halves = np.array([[0, 1]], "<i8")
    column = pa.Array.from_buffers(KIND, 1, [None, pa.py_buffer(halves)])
    batch = pa.record_batch({"n": column})
    assert encoded(WireEncoder(map_id=0), batch) == batch
    encoder = WireEncoder(map_id=0)
    assert encoded(encoder, pa.record_batch({"n": decimals([1])})) != batch
    assert encoded(encoder, batch) == batch


def test_values_behind_nulls_are_not_checked() -> None:
    halves = np.zeros((ENOUGH, 2), "<i8")
    halves[0, 0] = 10**18
    nulls = pa.py_buffer(b"\xfe" + b"\xff" * (ENOUGH // 8 - 1))
    column = pa.Array.from_buffers(KIND, ENOUGH, [nulls, pa.py_buffer(halves)])
    batch = pa.record_batch({"n": column})
    assert column.null_count == 1
    assert sent(batch) == [batch]


def test_buffers_may_end_in_the_middle_of_another_value() -> None:
    """Slices of received buffers do."""
    data = np.arange(ENOUGH, dtype="<i8").tobytes()
    numbers = pa.Array.from_buffers(pa.int64(), ENOUGH, [None, pa.py_buffer(data + b"\0")])
    ends = np.arange(2, dtype="<i4").tobytes() + b"\0"
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"a")]
    values = pa.Array.from_buffers(pa.string(), 1, buffers)
    codes = pa.DictionaryArray.from_arrays(pa.array([0] * ENOUGH, pa.int8()), values)
    batch = pa.record_batch({"n": numbers, "text": codes})
    (decoded,) = sent(batch)
    assert decoded.equals(to_canonical(batch, canonical_schema(batch.schema)))


def test_a_block_may_have_buffers_that_end_in_the_middle_of_a_value() -> None:
    column = pa.Array.from_buffers(pa.int16(), 3, [None, pa.py_buffer(b"\1\0\2\0\3\0\0")])
    (decoded,) = decode_block(encoded_block(column, "int64")).columns
    assert decoded == pa.array([1, 2, 3])


def encoded_block(column: pa.Array, plain: str) -> Block:
    field = pa.field("c", column.type, metadata={"mrflight": plain})
    return encode_block([pa.RecordBatch.from_arrays([column], schema=pa.schema([field]))], PLAIN)


@pytest.mark.parametrize(
    ("column", "plain"),
    [
        (pa.DictionaryArray.from_arrays(pa.array([0], pa.uint8()), ["x" * 2**20]), "string"),
        (pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), ["a"]), "string"),
        (pa.DictionaryArray.from_arrays(pa.array([0], pa.uint8()), [1]), "string"),
        (pa.DictionaryArray.from_arrays(pa.array([0], pa.uint8()), ["a"]), "int64"),
        (pa.array([1]), "string"),
        (pa.array([1]), "int32"),
        (pa.array([1], pa.uint8()), "int32"),
        (pa.array([1], pa.int8()), "double"),
        (pa.array([1], pa.int8()), "anything"),
        (pa.array([100], pa.int8()), "decimal128(2, 1)"),
        (pa.array([1], pa.int8()), "decimal128(19, 1)"),
        (pa.array([1], pa.int8()), "decimal128(0, 1)"),
        (pa.array([[1]]), "int64"),
        (pa.array([1.0]), "int64"),
    ],
    ids=str,
)
def test_an_encoding_that_no_writer_uses_is_refused(column: pa.Array, plain: str) -> None:
    """Otherwise a row of one byte could become as large as the sender likes."""
    with pytest.raises(CorruptBlockError, match="encod"):
        decode_block(encoded_block(column, plain))


def test_an_encoded_block_may_have_no_rows() -> None:
    block = encoded_block(pa.array([], pa.int8()), "decimal128(15, 2)")
    assert decode_block(block) == pa.record_batch({"c": pa.array([], pa.decimal128(15, 2))})


def test_a_long_type_name_is_shortened_in_the_error() -> None:
    with refused(CorruptBlockError) as raised:
        decode_block(encoded_block(pa.array([1], pa.int8()), "x" * 2**20))
    assert len(str(raised.value)) < 300


class Celsius(pa.ExtensionType):  # type: ignore[misc]
    """An extension type without a hash, as all that are defined in Python."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "mrflight.tests.celsius")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Celsius:
        return cls()


def test_columns_that_pyarrow_has_no_class_for_are_refused() -> None:
    """Intervals of months, which pyarrow reads without having a class for them."""
    schema, batch, months = (ctypes.c_void_p * 9)(), (ctypes.c_void_p * 10)(), b"tiM\0"
    field = pa.field("c", pa.int32(), metadata={"mrflight": "int64"})
    rows = pa.RecordBatch.from_arrays([pa.array([1], pa.int32())], schema=pa.schema([field]))
    rows._export_to_c(ctypes.addressof(batch), ctypes.addressof(schema))
    (child,) = (ctypes.c_void_p * 1).from_address(schema[5] or 0)
    ctypes.c_char_p.from_address(child or 0).value = months
    strange = pa.RecordBatch._import_from_c(ctypes.addressof(batch), ctypes.addressof(schema))
    with pytest.raises(CorruptBlockError):
        decode_block(encode_block([strange], PLAIN))


@pytest.fixture
def celsius() -> Iterator[Celsius]:
    pa.register_extension_type(Celsius())
    yield Celsius()
    with suppress(KeyError):  # a test may have unregistered it
        pa.unregister_extension_type(Celsius().extension_name)


def test_extension_types_are_not_encoded(celsius: Celsius) -> None:
    column = pa.ExtensionArray.from_storage(celsius, pa.array(range(ENOUGH)))
    batch = pa.record_batch({"degrees": column, "n": range(ENOUGH)})
    (decoded,) = sent(batch)
    assert decoded.equals(batch)
    assert decoded.schema == batch.schema


def test_an_unknown_extension_type_keeps_its_name(celsius: Celsius) -> None:
    """A server does not know it when it decodes other columns of a block for a plain client."""
    column = pa.ExtensionArray.from_storage(celsius, pa.array(range(ENOUGH)))
    batch = pa.record_batch({"degrees": column, "n": range(ENOUGH)})
    encoder = WireEncoder(map_id=0)
    rows = encoded(encoder, batch)
    assert rows.column("n").type == pa.int16()
    block = encoder.block(rows)
    pa.unregister_extension_type(celsius.extension_name)
    metadata = decode_block(block).schema.field("degrees").metadata
    assert metadata[b"ARROW:extension:name"] == celsius.extension_name.encode()


def test_no_extension_type_is_an_encoding(celsius: Celsius) -> None:
    column = pa.ExtensionArray.from_storage(celsius, pa.array([1]))
    with refused(CorruptBlockError):
        decode_block(encoded_block(column, "int64"))


def test_a_decimal_of_any_scale_comes_back() -> None:
    """It is not encoded, as its reader would not know the name of its type."""
    halves = np.zeros((ENOUGH, 2), "<i8")
    data = pa.py_buffer(halves)
    for scale in (999, -999, 1000, -1000, 2**31 - 1):
        column = pa.Array.from_buffers(pa.decimal128(9, scale), ENOUGH, [None, data])
        batch = pa.record_batch({"n": column})
        (decoded,) = sent(batch)
        assert decoded.equals(batch)


def test_users_columns_of_the_encodings_types_are_not_decoded() -> None:
    batch = pa.record_batch(
        {
            "codes": pa.DictionaryArray.from_arrays(pa.array([0], pa.uint8()), pa.array(["a"])),
            "n": pa.array([Decimal("1.25")], pa.decimal64(9, 2)),
        }
    )
    assert decode_block(encode_block([batch], PLAIN)).equals(batch)
