"""Bytes that are not a block are refused even if their hash is right."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from mrflight.errors import CorruptBlockError
from mrflight.shuffle.wire.block import (
    Block,
    decode_block,
    decoded_bytes,
    encode_block,
    ipc_options,
)
from tests.support.clusters.blocks import COLUMNS, PLAIN, batch_of
from tests.support.suite.messages import refused

ROOT = Path(__file__).parents[4]
FUZZ_SEEDS = {"none": 11, "lz4": 12, "zstd": 13}
FUZZ_ROUNDS = 1500


@pytest.mark.parametrize("body", [b"", b"\0", b"\0" * 64, b"\xff" * 64, b"ARROW1\0\0" * 8])
def test_bytes_that_are_not_an_arrow_stream_are_refused(body: bytes) -> None:
    with refused(CorruptBlockError):
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
    with refused(CorruptBlockError):
        decode_block(block._replace(rows=rows))


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_block_is_refused_before_more_is_decoded_than_a_writer_writes(
    compression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a column is decoded to counts as well as what a buffer inflates to."""
    rows = 1_000
    narrow = pa.field("n", pa.int8(), metadata={"mrflight": "decimal128(18, 2)"})
    column = pa.array([7] * rows, pa.int8())
    batch = pa.RecordBatch.from_arrays([column], schema=pa.schema([narrow]))
    block = encode_block([batch], ipc_options(compression))
    size = 16 * rows + (rows if compression != "none" else 0)
    assert decoded_bytes(block) == size
    monkeypatch.setattr("mrflight.shuffle.wire.block.MAX_DECODED_BYTES", size)
    assert decode_block(block).num_rows == rows
    monkeypatch.setattr("mrflight.shuffle.wire.block.MAX_DECODED_BYTES", size - 1)
    with refused(CorruptBlockError):
        decode_block(block)


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
    """Decode damaged blocks; runs in its own process, because it may crash."""
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


@pytest.mark.parametrize(
    "compression",
    ["lz4", *(pytest.param(name, marks=pytest.mark.slow) for name in ("none", "zstd"))],
)
def test_damaged_blocks_are_refused_or_valid(compression: str) -> None:
    seed = FUZZ_SEEDS[compression]
    call = f"fuzz({compression!r}, {seed}, {FUZZ_ROUNDS})"
    code = f"from tests.unit.shuffle.wire.test_block_of_another_writer import fuzz; {call}"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True)
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
    """Using such a batch, for example in a group by, ends the process with a segmentation fault."""
    with pytest.raises(CorruptBlockError, match="cannot be read"):
        decode_block(_with_damage(column, before, after))


def test_a_block_whose_column_has_no_readable_name_is_refused() -> None:
    block = _with_damage(pa.array([1]), b"column 0", b"colum\xff 0")
    with pytest.raises(CorruptBlockError):
        decode_block(block)
