"""Calls to a data server about the tail of a live stream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from msgspec.structs import replace
from pyarrow import flight

from mrflight.config.identity import ClientOptions, Endpoint
from mrflight.errors import ProtocolError
from mrflight.ids import new_token
from mrflight.shuffle.wire.calls import call
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.flight_errors import from_flight
from mrflight.shuffle.wire.protocol import Done, decode
from mrflight.shuffle.wire.tail_protocol import (
    MAX_WAIT_S,
    OpenTail,
    TailAction,
    TailAnswer,
    TailName,
    TailPositions,
    TailPut,
    TailRange,
    TailRead,
    TrimTail,
)
from mrflight.system.closeable import Closeable

Parts = list[tuple[TailRange, pa.RecordBatch]]


class TailRows(NamedTuple):
    """Rows of a tail, and how far they go."""

    schema: pa.Schema
    watermark: dict[str, int]
    parts: Parts

    @property
    def batches(self) -> list[pa.RecordBatch]:
        """The batches that have rows."""
        return [batch for _, batch in self.parts if batch.num_rows]


class TailClient(Closeable):
    """A connection to the data server of a tail. Not safe for several threads.

    Its calls raise the errors of the server, ServerUnavailableError and DeadlineExceededError.
    """

    def __init__(self, server: Endpoint, token: str = "") -> None:
        """``token`` is that of the tail, or of its readers; a tail that is opened has one."""
        self._token = token
        self._location = server.location
        self._connections = Connections(ClientOptions(transport="flight", identity=server.identity))

    def open(self, request: OpenTail) -> dict[str, int]:
        """Begin a tail or go on with it; return with which offsets."""
        self._token = self._token or new_token()
        request = replace(request, token=self._token)
        answer = call(
            self._connections, self._location, TailAction.OPEN_TAIL, request, TailPositions
        )
        return answer.next

    def trim(self, tail: str, recorded: dict[str, int]) -> dict[str, int]:
        """Say what the table has recorded; return with which offsets the tail goes on."""
        request = TrimTail(tail, recorded, self._token)
        answer = call(
            self._connections, self._location, TailAction.TRIM_TAIL, request, TailPositions
        )
        return answer.next

    def drop(self, tail: str) -> None:
        """Let the server forget a tail."""
        request = TailName(tail, self._token)
        call(self._connections, self._location, TailAction.DROP_TAIL, request, Done)

    def put(self, target: TailPut, schema: pa.Schema, parts: Iterable[Any]) -> dict[str, int]:
        """Put batches of one schema with their ranges; return with which offsets the tail goes on.

        The server has all of them then that follow what it had.
        """
        path = target._replace(token=self._token).path
        descriptor = flight.FlightDescriptor.for_path(*path)
        options = flight.FlightCallOptions(timeout=self._connections.timeouts.stream_s)
        with from_flight(self._location, f"put to the tail {target.tail}"):
            client = self._connections.to(self._location)
            writer, reader = client.do_put(descriptor, schema, options)
            with writer:
                for part, batch in parts:
                    writer.write_with_metadata(batch, msgspec.json.encode(part))
                writer.done_writing()
                receipt = reader.read()
        if receipt is None:
            raise ProtocolError(f"{self._location} gave no receipt for a put to a tail")
        return decode(memoryview(receipt), TailPositions).next

    def read(self, request: TailRead) -> TailRows:
        """Return the rows that a ticket is for. Blocks for ``request.wait_s`` at most."""
        waits_s = min(request.wait_s, MAX_WAIT_S) + self._connections.timeouts.call_s
        options = flight.FlightCallOptions(timeout=waits_s)
        with from_flight(self._location, f"read of the tail {request.tail}"):
            client = self._connections.to(self._location)
            ticket = flight.Ticket(replace(request, token=self._token).encode())
            reader = client.do_get(ticket, options)
            first = reader.read_chunk()
            watermark = decode(memoryview(first.app_metadata), TailAnswer).watermark
            parts: Parts = []
            for chunk in reader:
                parts.append((decode(memoryview(chunk.app_metadata), TailRange), chunk.data))
        return TailRows(reader.schema, watermark, parts)

    def close(self) -> None:
        self._connections.close()
