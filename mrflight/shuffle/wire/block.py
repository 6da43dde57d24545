"""A block: some rows of one partition from one map attempt, as bytes.

A block is an Arrow IPC stream of one record batch. It has its own schema and
dictionaries, so that it can be stored, sent and read without anything else.
Its body is compressed at most once, by the writer. On the wire a block is the
only column of a record batch of bytes: Flight moves such a batch without
copying it, and a data server stores it without looking inside. Compared with
plain record batches, blocks of 1 MiB are put at 0.8 of the speed and read at 0.6,
encoding and decoding included.

The writer hashes the bytes once, after encoding them. The hash goes with the
block through memory, disk and network, and `decode_block` checks it, so that
bytes that were damaged anywhere on the way are found before they become rows.
Both hashes take 20 us of the 240 us that it takes to encode and decode 1 MiB.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import pyarrow as pa
import xxhash

from mrflight.compute.inflated_size import declared
from mrflight.errors import CorruptBlockError, ProtocolError
from mrflight.ids import MAX_PARTITIONS
from mrflight.shuffle.wire.column_encoding import (
    decode_columns,
    decoded_value_bytes,
    may_be_encoded,
)
from mrflight.system.shared_memory import Segment
from mrflight.units import format_bytes

WIRE_SCHEMA = pa.schema([pa.field("block", pa.uint8(), nullable=False)])
"""The schema of a stream of blocks. The column of each message is the bytes of one block."""

_TAG = struct.Struct("<BxxxIQQ")
_TAG_VERSION = 3
MAX_ROWS = 2**40

MAX_DECODED_BYTES = 2 * 2**30
"""What the rows of one block may take. Writers make blocks of 1 MiB, or of one row that is larger,
whose strings have 32-bit offsets."""

PACKED_BYTES = 128 * 2**10
"""Blocks of up to this size share pages with others; a larger one has pages of its own, and is not
copied by a data server. With 512 KiB a server took as much memory beside a budget of 256 MiB, and a
fifth more processor time for puts of 200 or 400 KiB (7 alternating rounds: medians of 148 to 178
MiB instead of 159 to 161, with single rounds of 105 to 377; 2.5 and 2.6 s a GB instead of 2.1)."""
_ALIGNMENT = 8

_UNREADABLE = (
    *(pa.ArrowException, OSError, StopIteration, UnicodeDecodeError),
    KeyError,  # pyarrow reads intervals of months, but has no class for their columns
)


class Block(NamedTuple):
    """The bytes of a block, the number of its rows, and the hash of the bytes when written."""

    rows: int
    body: pa.Buffer
    xxh3: int
    """xxh3_64, seed 0."""

    @classmethod
    def of(cls, rows: int, body: pa.Buffer) -> Block:
        """Return a block of bytes that have just been written, with their hash."""
        return cls(rows, body, _hash(body))


class SharedBlock(Block):
    """A block whose body lies in shared memory."""

    segment: Segment
    offset: int

    @classmethod
    def at(cls, segment: Segment, offset: int, block: Block) -> SharedBlock:
        """Return a block whose body begins at ``offset``."""
        shared = cls(*block)
        shared.segment = segment
        shared.offset = offset
        return shared


class BlockTag(NamedTuple):
    """The ``app_metadata`` of a block: 24 bytes, little-endian, starting with a version."""

    partition: int
    rows: int
    xxh3: int

    def encode(self) -> bytes:
        return _TAG.pack(_TAG_VERSION, self.partition, self.rows, self.xxh3)

    @classmethod
    def decode(cls, metadata: pa.Buffer | None) -> BlockTag:
        if metadata is None or metadata.size != _TAG.size:
            raise ProtocolError(f"a block's tag must have {_TAG.size} bytes")
        version, partition, rows, xxh3 = _TAG.unpack(metadata)
        if version != _TAG_VERSION:
            raise ProtocolError(f"a block's tag must have version {_TAG_VERSION}, not {version}")
        if partition >= MAX_PARTITIONS or rows > MAX_ROWS:
            raise ProtocolError(
                f"a block's tag has partition {partition} and {rows} rows, which is too much"
            )
        return cls(partition, rows, xxh3)


def ipc_options(compression: str) -> pa.ipc.IpcWriteOptions:
    """Return how blocks are written with the compression ``none``, ``lz4`` or ``zstd``."""
    return pa.ipc.IpcWriteOptions(
        compression=None if compression == "none" else compression, use_threads=False
    )


def encode_block(batches: list[pa.RecordBatch], options: pa.ipc.IpcWriteOptions) -> Block:
    """Return one block of all rows of ``batches``, which have the same schema.

    The size of a block that is not compressed is found before its bytes are written, so that they
    are copied once: a buffer that grows takes 0.15 ms for 1 MiB, and this 0.09 ms. To gather the
    columns' own buffers without a copy takes 0.07 ms for 2 columns, but 0.13 ms for 16.
    """
    batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    if options.compression is not None:
        grown = pa.BufferOutputStream()
        _write(batch, options, grown)
        return Block.of(batch.num_rows, grown.getvalue())
    measured = pa.MockOutputStream()
    _write(batch, options, measured)
    body = pa.allocate_buffer(measured.size())
    _write(batch, options, pa.FixedSizeBufferWriter(body))
    return Block.of(batch.num_rows, body)


def _write(batch: pa.RecordBatch, options: pa.ipc.IpcWriteOptions, target: pa.NativeFile) -> None:
    with pa.ipc.new_stream(target, batch.schema, options=options) as stream:
        stream.write_batch(batch)


def decoded_bytes(block: Block) -> int:
    """Return the memory that `decode_block` takes in addition to the block, as its bytes say.

    Raises CorruptBlockError if they do not have its hash, or are not an Arrow stream.
    """
    check_hash(block)
    try:
        return _decoded_bytes(block.body)
    except _UNREADABLE as error:
        raise _unreadable(block, error) from error


def _decoded_bytes(body: pa.Buffer) -> int:
    size = value_bytes = 0
    for each in declared(body):
        size += each.inflated_bytes
        if each.message.type == "record batch":
            return size + max(0, each.rows) * value_bytes
        if each.message.type == "schema" and may_be_encoded(each.message.metadata):
            value_bytes = decoded_value_bytes(pa.ipc.read_schema(each.message))
    return size


def decode_block(block: Block) -> pa.RecordBatch:
    """Return the rows of a block, after checking its hash, its number of rows and their size.

    A column of few strings may be a dictionary, as it travelled. A caller that wants plain columns
    uses `mrflight.compute.layout.decode_dictionaries`. Raises CorruptBlockError if the hash or the
    number of rows differs, if the bytes are not an Arrow stream, or, before anything is decoded, if
    `decoded_bytes` are more than `MAX_DECODED_BYTES`.

    Bytes from a socket may be at any address. Acero copies each column that is not aligned, and
    other consumers of the C data interface refuse them, so an unaligned block is copied once, here.
    """
    check_hash(block)
    try:
        if (size := _decoded_bytes(block.body)) > MAX_DECODED_BYTES:
            raise _corrupt(
                f"a block of {block.body.size} bytes says that its rows take {format_bytes(size)}, "
                f"and no writer puts more than {format_bytes(MAX_DECODED_BYTES)} into a block"
            )
        with pa.ipc.open_stream(_align(block.body)) as stream:
            batch = stream.read_next_batch()
        batch.validate(full=True)  # 0.2 ms a MiB; after this, nothing reads outside of a buffer
        batch.schema.names  # noqa: B018 - this decodes them, and they may not be valid UTF-8
        batch = decode_columns(batch)
    except _UNREADABLE as error:
        raise _unreadable(block, error) from error
    if batch.num_rows != block.rows:
        raise _corrupt(f"a block has {batch.num_rows} rows; its tag says {block.rows}")
    return batch


def check_hash(block: Block) -> None:
    """Raise CorruptBlockError if the bytes do not have the block's hash."""
    found = _hash(block.body)
    if found != block.xxh3:
        raise _corrupt(
            f"a block of {block.body.size} bytes hashes to {found:016x}, and "
            f"{block.xxh3:016x} were written"
        )


def to_wire(block: Block) -> pa.RecordBatch:
    """Return the record batch that carries a block."""
    column = pa.Array.from_buffers(pa.uint8(), block.body.size, [None, block.body])
    return pa.RecordBatch.from_arrays([column], schema=WIRE_SCHEMA)


def from_wire(batch: pa.RecordBatch, tag: BlockTag) -> Block:
    """Return the block that a record batch carries. Nothing is copied or hashed."""
    column = batch.column(0)
    column.validate()
    if len(column) == 0:
        raise ProtocolError("a block must have bytes")
    body = column.buffers()[1].slice(column.offset, len(column))
    return Block(tag.rows, body, tag.xxh3)


def _hash(body: pa.Buffer) -> int:
    return xxhash.xxh3_64(memoryview(body)).intdigest()


def _unreadable(block: Block, error: Exception) -> CorruptBlockError:
    return _corrupt(f"a block of {block.body.size} bytes cannot be read: {error}")


def _corrupt(difference: str) -> CorruptBlockError:
    return CorruptBlockError(f"{difference}; fetch it from a replica, or run its map again")


def _align(body: pa.Buffer) -> pa.Buffer:
    if body.address % _ALIGNMENT == 0:
        return body
    copy = pa.allocate_buffer(body.size)
    memoryview(copy).cast("B")[:] = memoryview(body).cast("B")
    return copy
