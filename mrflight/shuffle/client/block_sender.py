"""Sends the blocks of one map attempt.

A thread of its own for that, so that the next rows are partitioned meanwhile,
made no difference to a writer alone and cost four per cent where every core
had a map.
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
from mrflight.shuffle.wire.block import (
    WIRE_SCHEMA,
    Block,
    BlockTag,
    encode_block,
    ipc_options,
    to_wire,
)
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.flight_errors import from_flight
from mrflight.shuffle.wire.protocol import PutReceipt, decode
from mrflight.shuffle.wire.tickets import BlockStream
from mrflight.system.deadlines import NO_RETRY

log = logging.getLogger(__name__)

_GOES_ON_WITHOUT = (
    DeadlineExceededError,
    ServerUnavailableError,
    ShuffleNotFoundError,  # it was given up, has dropped what it held, and is back
    SpillError,
)


class BlockSender:
    """One stream of blocks to each data server of a shuffle. Not for several threads.

    ``token`` is the shuffle's, and ``placement`` the locations of each partition; a block goes to
    all of them. A location that fails is done without, as long as there is another one for every
    partition.
    """

    def __init__(
        self,
        shuffle_id: str,
        source: MapAttempt,
        placement: Sequence[Sequence[str]],
        connections: Connections,
        compression: str,
        token: str = "",
    ) -> None:
        self._shuffle_id = shuffle_id
        self._token = token
        self._source = source
        self._placement = placement
        self._connections = connections
        self._options = ipc_options(compression)
        self._streams: dict[str, _Stream] = {}
        self.rows: npt.NDArray[np.int64] = np.zeros(len(placement), np.int64)
        """Sent so far, by partition."""
        self.bytes: npt.NDArray[np.int64] = np.zeros(len(placement), np.int64)
        """Of the blocks sent so far, by partition, replicas not counted."""
        self.without: set[str] = set()
        """The locations that failed."""

    def send(self, partition: int, rows: pa.RecordBatch) -> None:
        """Send rows as a block; waits while a server catches up."""
        self.send_block(partition, encode_block([rows], self._options))

    def send_block(self, partition: int, block: Block) -> None:
        """As `send`, a block as it is."""
        for location in self._placement[partition]:
            self._unless_gone(location, lambda at: self._stream_to(at).send(partition, block))
        self.rows[partition] += block.rows
        self.bytes[partition] += block.body.size

    def finish(self) -> None:
        """Return once the servers have stored every block."""
        for location in list(self._streams):
            self._unless_gone(location, lambda at: self._streams[at].finish())

    def _unless_gone(self, location: str, do: Callable[[str], None]) -> None:
        """Do it, and go on without a failing location whose partitions all have another one."""
        if location in self.without:
            return
        try:
            do(location)
        except _GOES_ON_WITHOUT as error:
            without = {*self.without, location}
            if any(without.issuperset(places) for places in self._placement):
                raise
            log.warning("going on without %s: %s", location, error)
            self.without = without
            if location in self._streams:
                self._streams[location].cancel()

    def stop(self) -> list[str]:
        """Send no more, whatever is under way; the servers that may hold blocks.

        They have ended their streams then, but for those that do not answer.
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
        self._doing = f"put of map {command.map_id}, attempt {command.attempt}"
        descriptor = flight.FlightDescriptor.for_command(command.encode())
        self._blocks = 0
        self._rows = 0
        self._ending: threading.Thread | None = None
        with from_flight(location, self._doing):
            self._writer, self._reader = client.do_put(
                descriptor, WIRE_SCHEMA, flight.FlightCallOptions(timeout=timeout_s)
            )

    def send(self, partition: int, block: Block) -> None:
        tag = BlockTag(partition, block.rows, block.xxh3)
        with from_flight(self._location, self._doing):
            self._writer.write_with_metadata(to_wire(block), tag.encode())
        self._blocks += 1
        self._rows += block.rows

    def finish(self) -> None:
        """Wait until the server has stored every block that was sent."""
        with from_flight(self._location, self._doing):
            self._writer.done_writing()
            body = self._reader.read()
            self._writer.close()
        receipt = decode(memoryview(body), PutReceipt) if body is not None else PutReceipt(0, 0)
        if (receipt.blocks, receipt.rows) != (self._blocks, self._rows):
            raise ProtocolError(
                f"{self._doing}: {self._location} stored {receipt.blocks} blocks and "
                f"{receipt.rows} rows of {self._blocks} and {self._rows}"
            )

    def cancel(self) -> threading.Thread:
        """End the stream whatever its state; what the server says of it is of no use any more.

        In a thread, as Flight can end a put only together with its server, which may stand still.
        """
        if self._ending is None:
            self._ending = threading.Thread(target=self._end, name="ending a put", daemon=True)
            self._ending.start()
        return self._ending

    def _end(self) -> None:
        try:
            self._writer.close()
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            log.debug("%s ended: %s", self._doing, error)
