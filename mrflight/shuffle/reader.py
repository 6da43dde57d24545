"""Reads one partition of the committed map attempts."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyarrow import flight

from mrflight.errors import IncompletePartitionError, ProtocolError, ServerUnavailableError
from mrflight.shuffle.block import WIRE_SCHEMA, BlockTag, decode_block, from_wire
from mrflight.shuffle.calls import STREAM_TIMEOUT_S
from mrflight.shuffle.connections import Connections
from mrflight.shuffle.flight_errors import from_flight
from mrflight.shuffle.protocol import ReadTicket
from mrflight.shuffle.registry import PartitionInfo


def read_partition(
    shuffle_id: str, info: PartitionInfo, connections: Connections
) -> Iterator[pa.RecordBatch]:
    """The rows of a partition in input order, block by block.

    A replica is asked where the first location cannot be reached.
    Raises IncompletePartitionError where the rows are not those that were
    promised, ProtocolError where a block cannot be read.
    """
    if info.rows == 0:
        return
    stream, location = _open(shuffle_id, info, connections)
    rows = 0
    with from_flight(location, f"get of partition {info.partition} of shuffle {shuffle_id!r}"):
        for message in stream:
            tag = BlockTag.decode(message.app_metadata)
            if tag.partition != info.partition:
                raise ProtocolError(
                    f"{location} sent partition {tag.partition} for {info.partition}"
                )
            rows += tag.rows
            yield decode_block(from_wire(message.data, tag.rows))
    if rows != info.rows:
        raise IncompletePartitionError(
            f"partition {info.partition} of shuffle {shuffle_id!r}: {location} gave {rows} rows of "
            f"the {info.rows} that were committed"
        )


def _open(
    shuffle_id: str, info: PartitionInfo, connections: Connections
) -> tuple[flight.FlightStreamReader, str]:
    ticket = flight.Ticket(ReadTicket(shuffle_id, info.partition, info.epoch, blocks=True).encode())
    options = flight.FlightCallOptions(timeout=STREAM_TIMEOUT_S)
    unreachable: list[str] = []
    for location in info.locations:
        try:
            with from_flight(location, f"get of partition {info.partition}"):
                stream = connections.to(location).do_get(ticket, options)
                if stream.schema != WIRE_SCHEMA:
                    raise ProtocolError(f"{location} did not answer with blocks")
                return stream, location
        except ServerUnavailableError as error:
            unreachable.append(str(error))
    raise ServerUnavailableError("; ".join(unreachable))
