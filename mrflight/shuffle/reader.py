"""Reads partitions of the committed map attempts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import pyarrow as pa
from pyarrow import flight

from mrflight.errors import IncompletePartitionError, ProtocolError, ServerUnavailableError
from mrflight.shuffle.block import WIRE_SCHEMA, BlockTag, decode_block, from_wire
from mrflight.shuffle.calls import STREAM_TIMEOUT_S
from mrflight.shuffle.connections import Connections
from mrflight.shuffle.flight_errors import from_flight
from mrflight.shuffle.protocol import ReadTicket
from mrflight.shuffle.registry import PartitionInfo
from mrflight.shuffle.share import Share

_PARTITIONS_AT_ONCE = 16
"""That one DoGet asks a server for; a ticket is short."""

_Tagged = tuple[BlockTag, pa.RecordBatch]


def read_partition(
    shuffle_id: str, info: PartitionInfo, connections: Connections
) -> Iterator[pa.RecordBatch]:
    """The rows of a partition in input order, block by block.

    A replica is asked where the first location cannot be reached.
    Raises IncompletePartitionError where the rows are not those that were
    promised, ProtocolError where a block cannot be read.
    """
    for rows in read_partitions(shuffle_id, [info], connections):
        yield from rows


def read_share(
    shuffle_id: str, info: PartitionInfo, share: Share, connections: Connections
) -> Iterator[pa.RecordBatch]:
    """As `read_partition`, a share of its rows; whoever has all shares read is to count them."""
    for tag, message in _blocks(shuffle_id, [info], connections, share):
        _check_partition(shuffle_id, info, tag.partition)
        yield decode_block(from_wire(message, tag.rows))


def read_partitions(
    shuffle_id: str, infos: Sequence[PartitionInfo], connections: Connections
) -> Iterator[Iterator[pa.RecordBatch]]:
    """Of each partition its rows, as `read_partition`; used up before the next is asked for.

    Neighbours on one server are asked for together, as small ones would wait
    for the answers longer than for the rows.
    """
    for _, neighbours in groupby(infos, lambda info: (info.locations, info.epoch)):
        run = list(neighbours)
        for start in range(0, len(run), _PARTITIONS_AT_ONCE):
            yield from _read_run(shuffle_id, run[start : start + _PARTITIONS_AT_ONCE], connections)


def _read_run(
    shuffle_id: str, run: Sequence[PartitionInfo], connections: Connections
) -> Iterator[Iterator[pa.RecordBatch]]:
    wanted = [info for info in run if info.rows]
    blocks = _blocks(shuffle_id, wanted, connections) if wanted else iter(())
    by_partition = groupby(blocks, lambda block: block[0].partition)
    for info in run:
        yield _rows(shuffle_id, info, by_partition) if info.rows else iter(())


def _blocks(
    shuffle_id: str,
    wanted: Sequence[PartitionInfo],
    connections: Connections,
    share: Share | None = None,
) -> Iterator[_Tagged]:
    stream, location = _open(shuffle_id, wanted, connections, share)
    with from_flight(location, f"get of {_names(wanted)} of shuffle {shuffle_id!r}"):
        for message in stream:
            tag = BlockTag.decode(message.app_metadata)
            yield tag, message.data


def _rows(
    shuffle_id: str, info: PartitionInfo, by_partition: Iterator[tuple[int, Iterator[_Tagged]]]
) -> Iterator[pa.RecordBatch]:
    partition, blocks = next(by_partition, (info.partition, iter(())))
    _check_partition(shuffle_id, info, partition)
    rows = 0
    for tag, message in blocks:
        rows += tag.rows
        yield decode_block(from_wire(message, tag.rows))
    if rows != info.rows:
        raise IncompletePartitionError(
            f"partition {info.partition} of shuffle {shuffle_id!r}: {info.locations[0]} gave "
            f"{rows} rows of the {info.rows} that were committed"
        )


def _check_partition(shuffle_id: str, info: PartitionInfo, sent: int) -> None:
    if sent != info.partition:
        raise ProtocolError(
            f"a server sent partition {sent} of shuffle {shuffle_id!r} for {info.partition}"
        )


def _open(
    shuffle_id: str,
    wanted: Sequence[PartitionInfo],
    connections: Connections,
    share: Share | None,
) -> tuple[flight.FlightStreamReader, str]:
    first, *others = (info.partition for info in wanted)
    ticket = ReadTicket(shuffle_id, first, wanted[0].epoch, True, tuple(others), share)
    options = flight.FlightCallOptions(timeout=STREAM_TIMEOUT_S)
    unreachable: list[str] = []
    for location in wanted[0].locations:
        try:
            with from_flight(location, f"get of {_names(wanted)}"):
                client = connections.to(location)
                stream = client.do_get(flight.Ticket(ticket.encode()), options)
                if stream.schema != WIRE_SCHEMA:
                    raise ProtocolError(f"{location} did not answer with blocks")
                return stream, location
        except ServerUnavailableError as error:
            unreachable.append(str(error))
    raise ServerUnavailableError("; ".join(unreachable))


def _names(wanted: Sequence[PartitionInfo]) -> str:
    if len(wanted) == 1:
        return f"partition {wanted[0].partition}"
    return f"partitions {wanted[0].partition} to {wanted[-1].partition}"
