"""The streams over which a writer puts blocks to a data server."""

from __future__ import annotations

import logging
import threading
import time

import pyarrow as pa
from msgspec.structs import replace
from pyarrow import flight

from mrflight.config.locations import is_encrypted
from mrflight.errors import ProtocolError, ServerUnavailableError
from mrflight.shuffle.wire.block import (
    PACKED_BYTES,
    WIRE_SCHEMA,
    Block,
    BlockTag,
    to_wire,
)
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.flight_errors import from_flight
from mrflight.shuffle.wire.protocol import PutReceipt, decode
from mrflight.shuffle.wire.secure_client import FIRST_PAUSE_S, RETRIES
from mrflight.shuffle.wire.shared_blocks import MAX_TAGS, NO_ROWS, SharedTag, encode_tags
from mrflight.shuffle.wire.tickets import BlockStream
from mrflight.shuffle.wire.transport import StreamChannel
from mrflight.system.shared_memory import Segment

log = logging.getLogger(__name__)

_SEGMENT_BYTES = 2**20
"""Small blocks are passed together, in segments of this size."""
_ALIGNMENT = 64
_PADDING = memoryview(bytes(_ALIGNMENT))


class PutStream:
    """One DoPut of blocks to one data server, inside of its messages.

    Not safe for several threads. Errors are those of calls to a server.
    """

    def __init__(self, connections: Connections, location: str, command: BlockStream) -> None:
        self._location = location
        self._operation = f"put of map {command.map_id}, attempt {command.attempt}"
        self._blocks = 0
        self._rows = 0
        self._ending: threading.Thread | None = None
        self._open(connections, command)

    def _open(self, connections: Connections, command: BlockStream) -> None:
        """Begin the put; where certificates may change, several times until the server takes it."""
        if not is_encrypted(self._location):
            self._begin(connections, command)
            return
        command = replace(command, wants_answer=True)
        for number in range(RETRIES + 1):
            try:
                self._begin(connections, command)
                self._await_answer()
                return
            except ServerUnavailableError:
                if number == RETRIES:
                    raise
                time.sleep(FIRST_PAUSE_S * 2**number)

    def _await_answer(self) -> None:
        """Wait until the server has taken the put; raises the error of one that is refused."""
        with from_flight(self._location, self._operation):
            if self._reader.read() is None:  # it has ended
                self._writer.close()  # which tells why
                raise flight.FlightInternalError("the put ended before it began")

    def _begin(self, connections: Connections, command: BlockStream) -> None:
        descriptor = flight.FlightDescriptor.for_command(command.encode())
        options = flight.FlightCallOptions(timeout=connections.timeouts.stream_s)
        with from_flight(self._location, self._operation):
            client = connections.to(self._location)
            self._writer, self._reader = client.do_put(descriptor, WIRE_SCHEMA, options)

    def send(self, partition: int, block: Block) -> None:
        """Send a block; blocks while the server catches up."""
        self._send_message(partition, block)
        self._blocks += 1
        self._rows += block.rows

    def finish(self) -> None:
        """Wait until the server has stored every block that was sent."""
        receipt = self._receive()
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

    def _send_message(self, partition: int, block: Block) -> None:
        tag = BlockTag(partition, block.rows, block.xxh3)
        with from_flight(self._location, self._operation):
            self._writer.write_with_metadata(to_wire(block), tag.encode())

    def _receive(self) -> PutReceipt:
        with from_flight(self._location, self._operation):
            self._writer.done_writing()
            body = self._reader.read()
            self._writer.close()
        return PutReceipt(0, 0) if body is None else decode(memoryview(body), PutReceipt)

    def _end(self) -> None:
        try:
            self._writer.close()
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            log.debug("%s ended: %s", self._operation, error)


class SharedPutStream(PutStream):
    """One DoPut whose blocks are passed in segments, over a channel of its own.

    The channel holds a few segments. A writer that is faster than the server waits for it there.
    """

    def __init__(
        self,
        connections: Connections,
        location: str,
        command: BlockStream,
        channel: StreamChannel,
    ) -> None:
        self._channel = channel.segments
        try:
            super().__init__(connections, location, command)
        except BaseException:
            self._channel.close()
            raise
        self._until = time.monotonic() + connections.timeouts.stream_s
        self._packed: list[tuple[int, Block]] = []
        self._packed_bytes = 0

    def send(self, partition: int, block: Block) -> None:
        if block.body.size > PACKED_BYTES:
            self._pass_packed()
            self._pass([(partition, block)])
        else:
            self._packed.append((partition, block))
            self._packed_bytes += block.body.size
            if self._packed_bytes >= _SEGMENT_BYTES or len(self._packed) == MAX_TAGS:
                self._pass_packed()
        self._blocks += 1
        self._rows += block.rows

    def finish(self) -> None:
        self._pass_packed()
        super().finish()
        self._channel.close()

    def cancel(self) -> threading.Thread:
        self._channel.close()
        return super().cancel()

    def _pass_packed(self) -> None:
        packed, self._packed, self._packed_bytes = self._packed, [], 0
        if packed:
            self._pass(packed)

    def _pass(self, blocks: list[tuple[int, Block]]) -> None:
        """Pass blocks in one segment."""
        parts: list[memoryview] = []
        tags = []
        end = 0
        for partition, block in blocks:
            tags.append(SharedTag(partition, block.rows, block.xxh3, end, block.body.size))
            parts.append(memoryview(block.body))
            padding = -block.body.size % _ALIGNMENT
            parts.append(_PADDING[:padding])
            end += block.body.size + padding
        if not self._send_segment(parts):
            for partition, block in blocks:
                self._send_message(partition, block)
            return
        with from_flight(self._location, self._operation):
            self._writer.write_with_metadata(NO_ROWS, encode_tags(tags))

    def _send_segment(self, parts: list[memoryview]) -> bool:
        """Return whether these bytes are passed in shared memory."""
        try:
            segment = Segment.of(parts)
        except OSError as error:  # for example, this process has too many open files
            log.info("%s: blocks go over Flight: %s", self._operation, error)
            return False
        try:
            return self._channel.send(segment, max(0.0, self._until - time.monotonic()) or 0.01)
        except OSError as error:
            if not isinstance(error, TimeoutError):
                self._receive()  # raises what the server answered before it closed the channel
            with from_flight(self._location, self._operation):
                raise
