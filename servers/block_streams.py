"""The rows that a data server takes and gives, as blocks, as they come over Flight."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyarrow import flight

from mrflight.compute.layout import decode_dictionaries
from mrflight.errors import ProtocolError
from mrflight.shuffle.store.canonical_slices import canonical_slices
from mrflight.shuffle.store.received_batch import check_received
from mrflight.shuffle.wire.block import (
    WIRE_SCHEMA,
    Block,
    check_hash,
    decode_block,
    encode_block,
    ipc_options,
)
from mrflight.shuffle.wire.shared_blocks import blocks_of, check_put
from mrflight.system.segment_channel import SegmentChannel

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


def plain_rows(blocks: Iterator[Block]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of blocks for plain clients, in small batches.

    Decoded rows may take 36 times the bytes of their block.
    """
    for block in blocks:
        yield from in_messages(decode_dictionaries(decode_block(block)))
