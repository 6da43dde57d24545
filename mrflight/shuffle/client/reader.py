"""Reads partitions of the committed map attempts."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from itertools import groupby

import pyarrow as pa
from pyarrow import flight

from mrflight.errors import (
    CorruptBlockError,
    DeadlineExceededError,
    IncompletePartitionError,
    ProtocolError,
    ServerUnavailableError,
    ShuffleError,
    ShuffleNotFoundError,
    SpillError,
)
from mrflight.events.attempt_counts import COUNTS
from mrflight.ids import ShuffleKey
from mrflight.shuffle.wire.block import WIRE_SCHEMA, Block, BlockTag, decode_block
from mrflight.shuffle.wire.calls import note_silence
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.flight_errors import from_flight
from mrflight.shuffle.wire.partition_info import PartitionInfo
from mrflight.shuffle.wire.shared_blocks import blocks_of
from mrflight.shuffle.wire.stall_detector import StallDetector
from mrflight.shuffle.wire.tickets import ChannelKey, PartitionSlice, ReadTicket
from mrflight.shuffle.wire.transport import channel_to

log = logging.getLogger(__name__)

_PARTITIONS_AT_ONCE = 16
"""The partitions of one DoGet; a ticket is short."""

_REPLICA_MAY_HELP = (
    CorruptBlockError,
    DeadlineExceededError,
    IncompletePartitionError,
    ServerUnavailableError,
    ShuffleNotFoundError,  # it was declared lost, has dropped what it held, and is back
    SpillError,
)

_stall_detector = StallDetector()

_Tagged = tuple[BlockTag, pa.RecordBatch]
"""A block's tag and its rows."""


def read_partition(
    shuffle: ShuffleKey, info: PartitionInfo, connections: Connections
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition in input order, block by block.

    A column of few strings may come as a dictionary, in any of the batches. A caller that wants
    plain columns uses `mrflight.compute.layout.decode_dictionaries`.

    If a location fails, even in the middle of the rows, the next one continues. If the last one
    fails, its error is raised, with its ``location`` and ``partition``: IncompletePartitionError if
    the rows are not those that were committed, CorruptBlockError if a block has changed since it
    was written.
    """
    for rows in read_partitions(shuffle, [info], connections):
        yield from rows


def read_slice(
    shuffle: ShuffleKey,
    info: PartitionInfo,
    partition_slice: PartitionSlice,
    connections: Connections,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a slice as `read_partition` does.

    The caller must compare the number of rows in all slices with what was committed.
    """
    reading = _Reading(shuffle, [info], connections, partition_slice)
    for _, rows in reading.blocks():
        yield rows


def read_partitions(
    shuffle: ShuffleKey,
    infos: Sequence[PartitionInfo],
    connections: Connections,
) -> Iterator[Iterator[pa.RecordBatch]]:
    """Yield for each partition its rows as `read_partition` does; read one before the next.

    Neighbours on one server are requested together, because small partitions take longer to
    request than to read.
    """
    for _, neighbours in groupby(infos, lambda info: (info.locations, info.epoch, info.generation)):
        run = list(neighbours)
        for start in range(0, len(run), _PARTITIONS_AT_ONCE):
            part = run[start : start + _PARTITIONS_AT_ONCE]
            filled = [info for info in part if info.rows]
            yield from _read_run(part, _Reading(shuffle, filled, connections))


def _read_run(
    run: Sequence[PartitionInfo], reading: _Reading
) -> Iterator[Iterator[pa.RecordBatch]]:
    blocks = reading.blocks() if any(info.rows for info in run) else iter(())
    by_partition = groupby(blocks, lambda block: block[0].partition)
    for info in run:
        yield _rows(by_partition) if info.rows else iter(())


def _rows(by_partition: Iterator[tuple[int, Iterator[_Tagged]]]) -> Iterator[pa.RecordBatch]:
    for _, blocks in by_partition:
        for _, rows in blocks:
            yield rows
        return


class _Reading:
    """One reading of some partitions with the same locations, from one location after another."""

    def __init__(
        self,
        shuffle: ShuffleKey,
        partitions: Sequence[PartitionInfo],
        connections: Connections,
        partition_slice: PartitionSlice | None = None,
    ) -> None:
        self._shuffle = shuffle
        self._partitions = partitions
        self._connections = connections
        self._partition_slice = partition_slice
        self._seen: list[BlockTag] = []

    def blocks(self) -> Iterator[_Tagged]:
        """Yield the blocks, partition by partition; each one is complete before the next."""
        locations = self._partitions[0].locations
        for location in locations:
            try:
                yield from self._from(location)
                return
            except _REPLICA_MAY_HELP as error:
                error.location = error.location or location
                if location == locations[-1]:
                    note_silence(error, location, self._connections.identity)
                    raise
                log.warning("going on at a replica, as %s failed: %s", location, error)
                self._connections.forget(location)

    def _from(self, location: str) -> Iterator[_Tagged]:
        """Yield the blocks that have not been read yet, from one location."""
        already = iter(self._seen[:])
        expected = iter(self._partitions)
        info, missing = next(expected), self._partitions[0].rows
        for tag, block in self._stream(location):
            while tag.partition != info.partition:
                self._check_complete(info, missing, location)
                if (following := next(expected, None)) is None:
                    raise ProtocolError(
                        f"{location} sent partition {tag.partition} of shuffle "
                        f"{self._shuffle.id!r} for {info.partition}"
                    )
                info, missing = following, following.rows
            missing -= tag.rows
            if (before := next(already, None)) is not None:
                self._check_same(before, tag, location)
                continue
            rows = self._decode(tag, block, location)
            self._seen.append(tag)
            COUNTS.fetched[location] += block.body.size
            yield tag, rows
        self._check_complete(info, missing, location)
        for info in expected:
            self._check_complete(info, info.rows, location)

    def _stream(self, location: str) -> Iterator[tuple[BlockTag, Block]]:
        with from_flight(location, f"get of {self._names()} of shuffle {self._shuffle.id!r}"):
            timeouts = self._connections.timeouts
            channel = channel_to(self._connections, location, timeouts.idle_timeout_s)
            with closing(channel.segments) if channel else nullcontext():
                for message in self._messages(location, channel.key if channel else ""):
                    yield from blocks_of(message, channel.segments if channel else None)

    def _messages(self, location: str, key: ChannelKey) -> Iterator[flight.FlightStreamChunk]:
        first, *others = (info.partition for info in self._partitions)
        epoch, generation = self._partitions[0].epoch, self._partitions[0].generation
        ticket = ReadTicket(
            *(self._shuffle, first, epoch, True, tuple(others), self._partition_slice),
            generation,
            key,
        )
        timeouts = self._connections.timeouts
        options = flight.FlightCallOptions(timeout=timeouts.stream_s)
        client = self._connections.to(location)

        def open_stream() -> flight.FlightStreamReader:
            stream = client.do_get(flight.Ticket(ticket.encode()), options)
            if stream.schema != WIRE_SCHEMA:
                raise ProtocolError(f"{location} did not answer with blocks")
            return stream

        return _stall_detector.messages(open_stream, timeouts.idle_timeout_s)

    def _decode(self, tag: BlockTag, block: Block, location: str) -> pa.RecordBatch:
        try:
            return decode_block(block)
        except CorruptBlockError as error:
            where = f"partition {tag.partition} of shuffle {self._shuffle.id!r}, of {location}"
            raise _about(tag.partition, CorruptBlockError(f"{where}: {error}")) from error

    def _check_complete(self, info: PartitionInfo, missing: int, location: str) -> None:
        if missing and not self._partition_slice:
            raise _about(
                info.partition,
                IncompletePartitionError(
                    f"partition {info.partition} of shuffle {self._shuffle.id!r}: {location} gave "
                    f"{info.rows - missing} rows of the {info.rows} that were committed"
                ),
            )

    def _check_same(self, before: BlockTag, tag: BlockTag, location: str) -> None:
        if before != tag:
            raise _about(
                tag.partition,
                IncompletePartitionError(
                    f"partition {tag.partition} of shuffle {self._shuffle.id!r}: {location} has "
                    "other blocks than its replica"
                ),
            )

    def _names(self) -> str:
        if len(self._partitions) == 1:
            return f"partition {self._partitions[0].partition}"
        return f"partitions {self._partitions[0].partition} to {self._partitions[-1].partition}"


def _about(partition: int, error: ShuffleError) -> ShuffleError:
    error.partition = partition
    return error
