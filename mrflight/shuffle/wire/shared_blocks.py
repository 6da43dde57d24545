"""Blocks that are passed in shared memory: what a message says of them.

Both ends of a stream that has a channel (`mrflight.system.segment_channel`) exchange messages
without rows. The ``app_metadata`` of a message names the blocks that lie in one segment, which has
been sent over the channel before the message. A block that is not in shared memory, because it was
spilled or came from another machine, travels in the same stream as `mrflight.shuffle.wire.block`
describes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import NamedTuple

import pyarrow as pa
from pyarrow import flight

from mrflight.errors import ProtocolError
from mrflight.ids import MAX_PARTITIONS
from mrflight.shuffle.wire.block import (
    MAX_ROWS,
    PACKED_BYTES,
    WIRE_SCHEMA,
    Block,
    BlockTag,
    SharedBlock,
    from_wire,
    to_wire,
)
from mrflight.system.deadlines import DEFAULT_TIMEOUTS
from mrflight.system.segment_channel import SegmentChannel
from mrflight.system.shared_memory import Segment, SegmentError

NO_ROWS = pa.RecordBatch.from_arrays([pa.array([], pa.uint8())], schema=WIRE_SCHEMA)

MAX_TAGS = 1024
"""The blocks of one message: their tags have 40 KiB."""

_RECEIVE_TIMEOUT_S = 120.0
"""How long an end waits for a segment, which is there before its message."""
_READER_TIMEOUT_S = DEFAULT_TIMEOUTS.stream_s
"""How long a server waits for a reader that has enough to do with what it has received. One that is
gone has closed its channel."""
_UNUSED_BYTES = 4096
"""A segment may be so much larger than the block that is alone in it."""

_HEADER = struct.Struct("<BxxxI")
_VERSION = 4
_TAG = struct.Struct("<IxxxxQQQQ")


class SharedTag(NamedTuple):
    """A block in the segment of its message: 40 bytes, little-endian."""

    partition: int
    rows: int
    xxh3: int
    offset: int
    size: int


def encode_tags(tags: list[SharedTag]) -> bytes:
    """Return the ``app_metadata`` of a message about the blocks of one segment."""
    return b"".join([_HEADER.pack(_VERSION, len(tags)), *(_TAG.pack(*tag) for tag in tags)])


def decode_tags(metadata: pa.Buffer) -> list[SharedTag]:
    """Return the tags of a message; raise ProtocolError if they are not valid."""
    view = memoryview(metadata)
    count = _HEADER.unpack_from(view)[1] if view.nbytes >= _HEADER.size else 0
    if not 0 < count <= MAX_TAGS or view.nbytes != _HEADER.size + count * _TAG.size:
        raise ProtocolError(f"a message of {view.nbytes} bytes names {count} blocks")
    return [SharedTag(*numbers) for numbers in _TAG.iter_unpack(view[_HEADER.size :])]


def blocks_of(
    message: flight.FlightStreamChunk, channel: SegmentChannel | None
) -> Iterator[tuple[BlockTag, Block]]:
    """Yield the blocks of a message, which are in the next segment of the channel if it says so.

    Raises ProtocolError if the message or its segment is not valid, and OSError if the segment does
    not come.
    """
    metadata = message.app_metadata
    if metadata is None or metadata.size == 0 or metadata[0] != _VERSION:
        tag = BlockTag.decode(metadata)
        yield tag, from_wire(message.data, tag)
        return
    if channel is None:
        raise ProtocolError("a stream without a channel has no blocks in shared memory")
    tags = decode_tags(metadata)
    try:
        segment = channel.receive(_RECEIVE_TIMEOUT_S)
    except SegmentError as error:
        raise ProtocolError(str(error)) from error
    if (size := sum(tag.size for tag in tags)) > segment.size:
        raise ProtocolError(f"blocks of {size} bytes do not fit into {segment.size} bytes")
    for each in tags:
        yield BlockTag(*each[:3]), _block_in(segment, each)


def _block_in(segment: Segment, tag: SharedTag) -> SharedBlock:
    end = tag.offset + tag.size
    if tag.partition >= MAX_PARTITIONS or tag.rows > MAX_ROWS or tag.size == 0:
        raise ProtocolError(f"{tag} is not a block")
    if end > segment.size:
        raise ProtocolError(f"{tag} ends behind its segment of {segment.size} bytes")
    body = segment.read(tag.offset, tag.size)
    return SharedBlock.at(segment, tag.offset, Block(tag.rows, body, tag.xxh3))


def check_put(block: Block) -> None:
    """Raise ProtocolError if a data server could not hold a block where a writer has put it.

    Nobody may change its bytes any more, and the memory of a block that is not copied is to be free
    with the block.
    """
    if not isinstance(block, SharedBlock):
        return
    if not block.segment.is_final:
        raise ProtocolError("the segment of a put can still be changed; seal it first")
    size, whole = block.body.size, block.segment.size
    if size > PACKED_BYTES and whole - size >= _UNUSED_BYTES:
        raise ProtocolError(
            f"a block of {size} bytes is put in a segment of {whole} bytes; one of more than "
            f"{PACKED_BYTES} bytes must have a segment of its own"
        )


def messages(
    blocks: Iterable[tuple[int, Block]], channel: SegmentChannel | None
) -> Iterator[tuple[pa.RecordBatch, bytes]]:
    """Yield the messages that pass blocks, given with their partitions, through a stream.

    Segments are sent over ``channel`` before their message is yielded; without a channel, and while
    too many segments are on their way, blocks are in the messages. Raises OSError if the other end
    of the channel is gone.
    """
    for segment, run in groupby(blocks, lambda each: _segment_of(each[1])):
        while some := list(islice(run, MAX_TAGS)):
            if segment and channel and channel.send(segment, _READER_TIMEOUT_S):
                yield NO_ROWS, encode_tags([_tag_of(*each) for each in some])
                continue
            for partition, block in some:
                yield to_wire(block), BlockTag(partition, block.rows, block.xxh3).encode()


def _segment_of(block: Block) -> Segment | None:
    return block.segment if isinstance(block, SharedBlock) else None


def _tag_of(partition: int, block: Block) -> SharedTag:
    assert isinstance(block, SharedBlock)
    return SharedTag(partition, block.rows, block.xxh3, block.offset, block.body.size)
