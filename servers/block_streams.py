"""The rows that a data server takes and gives, as blocks, as they come over Flight."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyarrow import flight, types

from mrflight.compute.layout import decode_dictionaries
from mrflight.errors import ProtocolError
from mrflight.shuffle.store.canonical_slices import SLICE_BYTES, canonical_slices
from mrflight.shuffle.store.decode_memory import DecodeMemory
from mrflight.shuffle.store.decoded_size import row_bytes
from mrflight.shuffle.store.received_batch import check_block_message, check_received
from mrflight.shuffle.wire.block import (
    WIRE_SCHEMA,
    Block,
    check_hash,
    decode_block,
    decoded_bytes,
    encode_block,
    ipc_options,
)
from mrflight.shuffle.wire.shared_blocks import blocks_of, check_put
from mrflight.system.segment_channel import SegmentChannel
from mrflight.units import format_bytes

from .idle_streams import StreamRules
from .tails import in_messages


def received_messages(
    reader: flight.MetadataRecordBatchReader,
) -> Iterator[flight.FlightStreamChunk]:
    """Yield the messages of a put; raise ProtocolError if one is unreadable or has no batch."""
    try:
        for message in reader:
            if message.data is None:  # only app_metadata
                raise ProtocolError("a put's message has no batch of rows")
            yield message
    except flight.FlightError:
        raise
    except (pa.ArrowException, OSError) as error:  # Arrow refuses some bytes with an OSError
        raise ProtocolError(f"a put cannot be read: {error}") from error


def received_blocks(
    schema: pa.Schema,
    received: Iterator[flight.FlightStreamChunk],
    channel: SegmentChannel | None,
) -> Iterator[tuple[int, Block]]:
    """Yield the blocks of a stream from our own writer, with their partitions."""
    if schema != WIRE_SCHEMA:
        raise ProtocolError(f"a stream of blocks has the schema {WIRE_SCHEMA}, not {schema}")
    for message in received:
        check_block_message(message.data)
        for tag, block in blocks_of(message, channel):
            check_put(block)
            # A server works 0.8 s for a GB of puts with blocks of 1 MiB, or 2 s with 16 KiB. This
            # check is 0.03 or 0.07 s of that. With it the writer learns that a block was damaged on
            # its way, and not a reader long after the map has ended.
            check_hash(block)
            yield tag.partition, block


def received_batches(
    received: Iterator[flight.FlightStreamChunk], partition: int, rules: StreamRules
) -> Iterator[tuple[int, Block]]:
    """Yield the blocks of a plain client's stream of record batches, all for one partition.

    A message that is large once it is decoded becomes several blocks. Each of them is stored, or
    waits for memory, before the next one is decoded.
    """
    options = ipc_options("none")
    for message in received:
        check_received(message.data, takes_compressed=rules.takes_compressed)
        for piece in canonical_slices(message.data):
            yield partition, encode_block([piece], options)


def plain_rows(blocks: Iterator[Block], memory: DecodeMemory) -> Iterator[pa.RecordBatch]:
    """Yield the rows of blocks for plain clients, in small batches.

    The memory that a block says to need is held before it is decoded, until its rows are sent.
    Dictionaries, with which rows may take 36 times the bytes of their block or, in one that another
    writer has made, any number, are decoded a slice at a time. Raises ProtocolError for a block
    that needs too much.
    """
    for block in blocks:
        if (size := decoded_bytes(block)) > memory.max_block_bytes:
            raise ProtocolError(
                f"a block of {format_bytes(block.body.size)} has {format_bytes(size)} once it is "
                f"decoded, and this server decodes up to {format_bytes(memory.max_block_bytes)} "
                "for a plain client; read it as blocks, or write smaller batches"
            )
        with memory.held(size + block.body.size):
            for piece in _decoded_slices(decode_block(block), memory.max_block_bytes):
                yield from in_messages(piece)


def _decoded_slices(rows: pa.RecordBatch, max_row_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield rows without dictionaries, as many at a time as fit if all have the widest value.

    To look at the value of each row, as `canonical_slices` does, takes 15 times as long.
    """
    dictionaries = [each.dictionary for each in rows.columns if types.is_dictionary(each.type)]
    widest = sum(float(row_bytes(each).max(initial=0.0)) for each in dictionaries)
    if widest > max_row_bytes:
        raise ProtocolError(
            f"a row of a block has up to {format_bytes(int(widest))} without dictionaries, and "
            f"this server decodes up to {format_bytes(max_row_bytes)} for a plain client"
        )
    at_once = max(1, int(SLICE_BYTES // widest) if widest else rows.num_rows)
    for start in range(0, max(1, rows.num_rows), at_once):
        yield decode_dictionaries(rows.slice(start, at_once))
