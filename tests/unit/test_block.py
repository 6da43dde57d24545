"""Blocks come back as they were written; bytes that are no block are refused, whatever they are."""

from __future__ import annotations

import random
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.errors import CorruptBlockError, ProtocolError
from mrflight.ids import MAX_PARTITIONS
from mrflight.shuffle.block import (
    WIRE_SCHEMA,
    Block,
    BlockTag,
    check_hash,
    decode_block,
    encode_block,
    from_wire,
    ipc_options,
    to_wire,
)

ROOT = Path(__file__).parents[2]
FUZZ_SEEDS = {"none": 11, "lz4": 12, "zstd": 13}
FUZZ_ROUNDS = 1500
PLAIN = ipc_options("none")

examples = settings(max_examples=200, derandomize=True)

TIMES = [
    pa.date32(),
    pa.time32("s"),
    pa.time64("ns"),
    pa.timestamp("us", "Europe/Rome"),
    pa.timestamp("ns"),
    pa.duration("ms"),
]
NUMBERS = [
    *(getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *(getattr(pa, f"float{bits}")() for bits in (16, 32, 64)),
]
DECIMALS = [pa.decimal32(9, 2), pa.decimal64(18, 2), pa.decimal128(38, 2), pa.decimal256(76, 2)]
TEXTS = [
    *(pa.string(), pa.large_string(), pa.string_view()),
    *(pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(4)),
]

COLUMNS: list[pa.Array] = [
    pa.nulls(4),
    pa.array([True, False, None, True]),
    *(pa.array([1, 0, None, 100], type_) for type_ in NUMBERS),
    *(pa.array([Decimal("1.25"), None, Decimal("-3.50"), Decimal(0)], type_) for type_ in DECIMALS),
    *(pa.array([b"abcd", None, b"efgh", b"    "]).cast(type_) for type_ in TEXTS),
    pa.array(["a text that is longer than a view", "", None, "ä"], pa.string_view()),
    *(
        pa.array([0, 1, None, 5], pa.int32() if type_.bit_width == 32 else pa.int64()).view(type_)
        for type_ in TIMES
    ),
    pa.array([0, 86_400_000, None, 0]).view(pa.date64()),
    pa.array([(1, 2, 3), None, (0, 0, 0), (1, 1, 1)], pa.month_day_nano_interval()),
    pa.array(["a", "b", None, "a"]).dictionary_encode(),
    pa.array([["a"], [], None, ["b", None]], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    pa.array([[1], [], None, [2, None]]),
    pa.array([[1], [], None, [2, None]], pa.large_list(pa.int16())),
    pa.array([[1], [], None, [2, None]], pa.list_view(pa.int8())),
    pa.array([[1, 2], None, [3, None], [4, 5]], pa.list_(pa.int8(), 2)),
    pa.array([{"x": 1, "y": [{"z": "a"}]}, None, {"x": None, "y": []}, {"x": 4, "y": None}]),
    pa.array([[("a", 1)], [], None, [("b", None)]], pa.map_(pa.string(), pa.int8())),
    pa.RunEndEncodedArray.from_arrays(pa.array([3, 4], pa.int32()), pa.array(["a", None])),
    pa.UnionArray.from_sparse(
        pa.array([0, 1, 0, 1], pa.int8()), [pa.array([1, 2, 3, 4]), pa.array(["a", "b", "c", "d"])]
    ),
    pa.UnionArray.from_dense(
        pa.array([0, 1, 0, 1], pa.int8()),
        pa.array([0, 0, 1, 1], pa.int32()),
        [pa.array([1, 2]), pa.array(["a", "b"])],
    ),
    pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0123456789abcdef"] * 4, pa.binary(16))),
]


def batch_of(*columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        list(columns), names=[f"column {i}" for i in range(len(columns))]
    )


def rewritten(batch: pa.RecordBatch, compression: str = "none") -> pa.RecordBatch:
    decoded = decode_block(encode_block([batch], ipc_options(compression)))
    decoded.validate(full=True)
    return decoded


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type))
def test_every_column_comes_back(column: pa.Array, compression: str) -> None:
    batch = batch_of(column)
    for rows in (batch, batch.slice(1, 2), batch.slice(0, 0)):
        decoded = rewritten(rows, compression)
        assert decoded.schema == batch.schema
        assert decoded.equals(rows)


def test_all_columns_come_back_together() -> None:
    batch = batch_of(*COLUMNS)
    assert rewritten(batch).equals(batch)


def test_a_batch_without_columns_comes_back() -> None:
    assert rewritten(pa.record_batch({})).num_columns == 0


def test_several_batches_become_one_block_in_their_order() -> None:
    batches = [
        batch_of(pa.array([1, 2])),
        batch_of(pa.array([], pa.int64())),
        batch_of(pa.array([3])),
    ]
    block = encode_block(batches, PLAIN)
    assert block.rows == 3
    assert decode_block(block).column(0).to_pylist() == [1, 2, 3]


def test_a_slice_is_written_without_what_lies_around_it() -> None:
    batch = batch_of(pa.array(range(100_000)), pa.array(["x" * 10] * 100_000))
    assert encode_block([batch.slice(50_000, 10)], PLAIN).body.size < 5_000


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compression_makes_a_block_smaller(compression: str) -> None:
    batch = batch_of(pa.array(["the same text"] * 10_000))
    plain = encode_block([batch], PLAIN).body.size
    assert encode_block([batch], ipc_options(compression)).body.size < plain / 4


# Where the bytes lie


def at_offset(body: pa.Buffer, offset: int) -> pa.Buffer:
    """The same bytes, ``offset`` behind an address that is a multiple of 64."""
    room = pa.allocate_buffer(body.size + 64)
    start = -room.address % 64 + offset
    memoryview(room).cast("B")[start : start + body.size] = memoryview(body).cast("B")
    return room.slice(start, body.size)


def buffers_of(array: pa.Array) -> list[pa.Buffer]:
    return [buffer for buffer in array.buffers() if buffer is not None and buffer.size]


@pytest.mark.parametrize("offset", range(8))
def test_a_block_at_any_address_is_read_to_aligned_columns(offset: int) -> None:
    batch = batch_of(*COLUMNS)
    block = encode_block([batch], PLAIN)
    moved = at_offset(block.body, offset)
    assert moved.address % 8 == offset
    decoded = decode_block(block._replace(body=moved))
    decoded.validate(full=True)
    assert decoded.equals(batch)
    assert all(
        buffer.address % 8 == 0 for column in decoded.columns for buffer in buffers_of(column)
    )


def test_an_aligned_block_is_read_without_a_copy() -> None:
    block = encode_block([batch_of(pa.array(range(10_000)))], PLAIN)
    body = at_offset(block.body, 0)
    (values,) = buffers_of(decode_block(block._replace(body=body)).column(0))
    assert body.address < values.address < body.address + body.size


# On the wire


def test_a_block_travels_as_it_lies() -> None:
    block = encode_block([batch_of(pa.array([1, 2, 3]))], PLAIN)
    message = to_wire(block)
    assert message.schema == WIRE_SCHEMA
    received = from_wire(message, BlockTag(0, 3, block.xxh3))
    assert received == block
    assert received.body.address == block.body.address


def test_a_slice_of_a_message_is_the_block_in_it() -> None:
    block = encode_block([batch_of(pa.array([1, 2, 3]))], PLAIN)
    padded = pa.py_buffer(b"12345" + block.body.to_pybytes())
    message = to_wire(block._replace(body=padded)).slice(5)
    received = from_wire(message, BlockTag(0, 3, block.xxh3))
    assert decode_block(received).column(0).to_pylist() == [1, 2, 3]


def test_a_message_without_bytes_is_refused() -> None:
    with pytest.raises(ProtocolError, match="without bytes"):
        from_wire(to_wire(Block.of(0, pa.py_buffer(b""))), BlockTag(0, 0, 0))


@examples
@given(st.integers(0, MAX_PARTITIONS - 1), st.integers(0, 2**40), st.integers(0, 2**64 - 1))
def test_a_tag_comes_back(partition: int, rows: int, xxh3: int) -> None:
    tag = BlockTag(partition, rows, xxh3)
    encoded = tag.encode()
    assert encoded == b"".join(
        number.to_bytes(size, "little")
        for number, size in ((2, 4), (partition, 4), (rows, 8), (xxh3, 8))
    )
    assert BlockTag.decode(pa.py_buffer(encoded)) == tag


@examples
@given(
    st.none()
    | st.binary(max_size=32)
    | st.binary(min_size=23, max_size=23).map(lambda behind: b"\x02" + behind)
    | st.tuples(st.integers(0, 2**18), st.integers(0, 2**41), st.integers(0, 2**64 - 1)).map(
        lambda numbers: BlockTag(*numbers).encode()
    )
)
def test_any_bytes_are_a_tag_within_bounds_or_refused(data: bytes | None) -> None:
    try:
        tag = BlockTag.decode(None if data is None else pa.py_buffer(data))
    except ProtocolError:
        return
    assert 0 <= tag.partition < MAX_PARTITIONS
    assert 0 <= tag.rows <= 2**40
    assert 0 <= tag.xxh3 < 2**64


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (BlockTag(1, 1, 1).encode()[:-1], "24 bytes"),
        (b"\x01" + BlockTag(1, 1, 1).encode()[1:16], "24 bytes"),  # as version 1 was
        (b"\x03" + BlockTag(1, 1, 1).encode()[1:], "version 3, not 2"),
        (BlockTag(MAX_PARTITIONS, 1, 1).encode(), "partition 100000"),
        (BlockTag(1, 2**40 + 1, 1).encode(), "rows"),
    ],
)
def test_a_wrong_tag_is_said_to_be_so(data: bytes, says: str) -> None:
    with pytest.raises(ProtocolError, match=says):
        BlockTag.decode(pa.py_buffer(data))


# Bytes that are not those that were written


def flipped(body: pa.Buffer, bit: int) -> pa.Buffer:
    data = bytearray(body)
    data[bit // 8] ^= 1 << bit % 8
    return pa.py_buffer(data)


def bits_found(block: Block) -> int:
    """How many bits of a block are there, each of which was found when it alone was wrong."""
    bits: int = 8 * block.body.size
    for bit in range(bits):
        with pytest.raises(CorruptBlockError, match=f"{block.xxh3:016x} were written"):
            decode_block(block._replace(body=flipped(block.body, bit)))
    return bits


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_every_single_bit_of_a_block_that_is_wrong_is_found(compression: str) -> None:
    block = encode_block([batch_of(pa.array([1, None]))], ipc_options(compression))
    assert decode_block(block).column(0).to_pylist() == [1, None]
    assert bits_found(block) > 8 * 200


@settings(max_examples=300, derandomize=True)
@given(st.data())
def test_any_bit_of_any_block_that_is_wrong_is_found(data: st.DataObject) -> None:
    rows = data.draw(st.integers(0, 3_000), "rows")
    compression = data.draw(st.sampled_from(["none", "lz4", "zstd"]), "compression")
    batch = batch_of(pa.array(range(rows), pa.int64()), pa.array(["some text"] * rows))
    block = encode_block([batch], ipc_options(compression))
    bit = data.draw(st.integers(0, 8 * block.body.size - 1), "bit")
    with pytest.raises(CorruptBlockError, match=f"{block.xxh3:016x} were written"):
        decode_block(block._replace(body=flipped(block.body, bit)))
    with pytest.raises(CorruptBlockError):
        check_hash(block._replace(body=flipped(block.body, bit)))
    assert decode_block(block).equals(batch)


@pytest.mark.parametrize("offset", range(8))
def test_a_hash_is_of_the_bytes_wherever_they_lie(offset: int) -> None:
    block = encode_block([batch_of(*COLUMNS)], PLAIN)
    assert block.xxh3 == xxhash.xxh3_64_intdigest(block.body.to_pybytes(), seed=0)
    assert Block.of(block.rows, at_offset(block.body, offset)) == block
    check_hash(block._replace(body=at_offset(block.body, offset)))


def test_an_error_of_a_corrupt_block_says_what_differs_and_what_to_do() -> None:
    block = encode_block([batch_of(pa.array([1]))], PLAIN)
    with pytest.raises(CorruptBlockError) as caught:
        decode_block(block._replace(xxh3=7))
    assert str(caught.value) == (
        f"a block of {block.body.size} bytes hashes to {block.xxh3:016x}, and 0000000000000007 "
        "were written; it must be fetched from a replica, or its map be done again"
    )
    assert caught.value.retryable


# Bytes that are no block, though their hash is right: of a writer that is not ours


@pytest.mark.parametrize("body", [b"", b"\0", b"\0" * 64, b"\xff" * 64, b"ARROW1\0\0" * 8])
def test_bytes_that_are_no_stream_are_refused(body: bytes) -> None:
    with pytest.raises(CorruptBlockError, match=f"a block of {len(body)} bytes cannot be read"):
        decode_block(Block.of(0, pa.py_buffer(body)))


def test_a_stream_without_a_batch_is_refused() -> None:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, pa.schema({"a": pa.int8()})):
        pass
    with pytest.raises(CorruptBlockError, match="cannot be read"):
        decode_block(Block.of(0, out.getvalue()))


@pytest.mark.parametrize("rows", [0, 2, 4, 2**40])
def test_a_block_of_other_rows_than_its_tag_says_is_refused(rows: int) -> None:
    block = encode_block([batch_of(pa.array([1, 2, 3]))], PLAIN)
    with pytest.raises(CorruptBlockError, match=f"a block has 3 rows; its tag says {rows}"):
        decode_block(block._replace(rows=rows))


def test_a_truncated_block_is_refused_at_every_length() -> None:
    batch = batch_of(pa.array([1, None, 3]), pa.array(["a", "b", None]))
    body = encode_block([batch], PLAIN).body.to_pybytes()
    lengths = []
    for length in range(len(body)):
        try:
            decoded = decode_block(Block.of(3, pa.py_buffer(body[:length])))
        except CorruptBlockError:
            continue
        assert decoded.equals(batch)
        lengths.append(length)
    assert lengths == list(range(len(body) - 8, len(body)))  # only the end-of-stream mark is lost


def _damaged(body: bytes, rng: random.Random) -> bytes:
    data = bytearray(body)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        if not data:
            break
        at = rng.randrange(len(data))
        kind = rng.random()
        if kind < 0.7:
            data[at] ^= 1 << rng.randrange(8)
        elif kind < 0.85:
            del data[at:]
        else:
            data[at : at + 4] = rng.randbytes(len(data[at : at + 4]))
    return bytes(data)


def fuzz(compression: str, seed: int, rounds: int) -> None:
    """Decode damaged blocks; run in a process of its own, for it may crash."""
    rng = random.Random(seed)
    body = encode_block([batch_of(*COLUMNS)], ipc_options(compression)).body.to_pybytes()
    refused = 0
    for _ in range(rounds):
        try:
            batch = decode_block(Block.of(4, pa.py_buffer(_damaged(body, rng))))
        except CorruptBlockError:
            refused += 1
            continue
        assert batch.num_rows == 4
        batch.validate(full=True)
    assert 0 < refused < rounds
    sys.stdout.write(f"{refused} of {rounds} refused")


@pytest.mark.parametrize("compression", FUZZ_SEEDS)
def test_damaged_blocks_are_refused_or_valid(compression: str) -> None:
    seed = FUZZ_SEEDS[compression]
    call = f"fuzz({compression!r}, {seed}, {FUZZ_ROUNDS})"
    code = f"from tests.unit.test_block import fuzz; {call}"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, timeout=60)
    assert done.returncode == 0, f"{call}: {done.stderr.decode()[-2000:]}"


def _with_damage(column: pa.Array, before: bytes, after: bytes) -> Block:
    block = encode_block([batch_of(column)], PLAIN)
    body = block.body.to_pybytes()
    assert body.count(before) == 1
    return Block.of(block.rows, pa.py_buffer(body.replace(before, after)))


def _offsets(*values: int) -> bytes:
    return b"".join(value.to_bytes(4, "little") for value in values)


@pytest.mark.parametrize(
    ("column", "before", "after"),
    [
        (pa.array(["abc", "de", "f"]), _offsets(0, 3, 5, 6), _offsets(0, 2**30, 5, 6)),
        (pa.array(["abc", "de", "f"]), _offsets(0, 3, 5, 6), _offsets(0, 5, 3, 6)),
        (pa.array([[1], [2, 3], [4]]), _offsets(0, 1, 3, 4), _offsets(0, 2**30, 3, 4)),
    ],
    ids=["far offset", "falling offset", "far list"],
)
def test_a_block_whose_values_contradict_each_other_is_refused(
    column: pa.Array, before: bytes, after: bytes
) -> None:
    """Reading such a batch on, in a group by, say, ends the process with a segmentation fault."""
    with pytest.raises(CorruptBlockError, match="cannot be read"):
        decode_block(_with_damage(column, before, after))


def test_a_block_whose_column_has_no_readable_name_is_refused() -> None:
    block = _with_damage(pa.array([1]), b"column 0", b"colum\xff 0")
    with pytest.raises(CorruptBlockError):
        decode_block(block)
