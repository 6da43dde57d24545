"""Sends the blocks of one map attempt.

There is no thread for sending. One that let the next rows be partitioned meanwhile made no
difference to a single writer, and cost four per cent when every core had a map.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import flight

from mrflight.errors import (
    DeadlineExceededError,
    ProtocolError,
    ServerUnavailableError,
    ShuffleNotFoundError,
    SpillError,
)
from mrflight.ids import MapAttempt
from mrflight.shuffle.wire.block import WIRE_SCHEMA, Block, BlockTag, to_wire
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.flight_errors import from_flight
from mrflight.shuffle.wire.protocol import PutReceipt, decode
from mrflight.shuffle.wire.tickets import BlockStream
from mrflight.system.deadlines import NO_RETRY

log = logging.getLogger(__name__)

_REPLICAS_SUFFICE = (
    DeadlineExceededError,
    ServerUnavailableError,
    ShuffleNotFoundError,  # it was declared lost, has dropped what it held, and is back
    SpillError,
)


class BlockSender:
    """One stream of blocks to each data server of a shuffle. Not safe for several threads.

    ``placement`` is the locations of each partition; a block goes to all of them. If a location
    fails, sending continues without it as long as every partition has another one.
    """

    def __init__(
        self,
        shuffle_id: str,
        source: MapAttempt,
        placement: Sequence[Sequence[str]],
        connections: Connections,
        token: str = "",
    ) -> None:
        self._shuffle_id = shuffle_id
        self._token = token
        self._source = source
        self._placement = placement
        self._connections = connections
        self._streams: dict[str, _Stream] = {}
        self.rows: npt.NDArray[np.int64] = np.zeros(len(placement), np.int64)
        """Rows sent so far, by partition."""
        self.bytes: npt.NDArray[np.int64] = np.zeros(len(placement), np.int64)
        """Bytes of the blocks sent so far, by partition, without replicas."""
        self.without: set[str] = set()
        """The locations that failed."""

    def send(self, partition: int, block: Block) -> None:
        """Send a block; blocks while a server catches up."""
        for location in self._placement[partition]:
            self._try_location(location, lambda at: self._stream_to(at).send(partition, block))
        self.rows[partition] += block.rows
        self.bytes[partition] += block.body.size

    def finish(self) -> None:
        """Return once the servers have stored every block."""
        for location in list(self._streams):
            self._try_location(location, lambda at: self._streams[at].finish())

    def _try_location(self, location: str, do: Callable[[str], None]) -> None:
        """Call ``do``; a location that fails is left out if all its partitions have another one."""
        if location in self.without:
            return
        try:
            do(location)
        except _REPLICAS_SUFFICE as error:
            without = {*self.without, location}
            if any(without.issuperset(places) for places in self._placement):
                raise
            log.warning("going on without %s: %s", location, error)
            self.without = without
            if location in self._streams:
                self._streams[location].cancel()

    def stop(self) -> list[str]:
        """Stop sending at once, and return the servers that may hold blocks.

        Their streams have ended then, unless they do not answer.
        """
        until = time.monotonic() + NO_RETRY.call_s
        for ending in [stream.cancel() for stream in self._streams.values()]:
            ending.join(max(0.0, until - time.monotonic()))
        return list(self._streams)

    def _stream_to(self, location: str) -> _Stream:
        stream = self._streams.get(location)
        if stream is None:
            client = self._connections.to(location)
            stream_s = self._connections.timeouts.stream_s
            command = BlockStream(self._shuffle_id, *self._source, self._token)
            stream = _Stream(client, location, command, stream_s)
            self._streams[location] = stream
        return stream


class _Stream:
    """One DoPut of blocks to one data server."""

    def __init__(
        self,
        client: flight.FlightClient,
        location: str,
        command: BlockStream,
        timeout_s: float,
    ) -> None:
        self._location = location
        self._operation = f"put of map {command.map_id}, attempt {command.attempt}"
        descriptor = flight.FlightDescriptor.for_command(command.encode())
        self._blocks = 0
        self._rows = 0
        self._ending: threading.Thread | None = None
        with from_flight(location, self._operation):
            self._writer, self._reader = client.do_put(
                descriptor, WIRE_SCHEMA, flight.FlightCallOptions(timeout=timeout_s)
            )

    def send(self, partition: int, block: Block) -> None:
        tag = BlockTag(partition, block.rows, block.xxh3)
        with from_flight(self._location, self._operation):
            self._writer.write_with_metadata(to_wire(block), tag.encode())
        self._blocks += 1
        self._rows += block.rows

    def finish(self) -> None:
        """Wait until the server has stored every block that was sent."""
        with from_flight(self._location, self._operation):
            self._writer.done_writing()
            body = self._reader.read()
            self._writer.close()
        receipt = decode(memoryview(body), PutReceipt) if body is not None else PutReceipt(0, 0)
        if (receipt.blocks, receipt.rows) != (self._blocks, self._rows):
            raise ProtocolError(
                f"{self._operation}: {self._location} stored {receipt.blocks} blocks and "
                f"{receipt.rows} rows of {self._blocks} and {self._rows}"
            )

    def cancel(self) -> threading.Thread:
        """End the stream in any state, and ignore what the server says about it.

        This happens in a thread, because Flight can end a put only together with the server, which
        may be suspended.
        """
        if self._ending is None:
            self._ending = threading.Thread(target=self._end, name="cancel put", daemon=True)
            self._ending.start()
        return self._ending

    def _end(self) -> None:
        try:
            self._writer.close()
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            log.debug("%s ended: %s", self._operation, error)
