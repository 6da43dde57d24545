"""One stream of batches to the owner of an event log."""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec
import pyarrow as pa
from pyarrow import flight

from mrflight.config.identity import ClientOptions
from mrflight.errors import MrflightError, ProtocolError, ServerUnavailableError
from mrflight.ids import ShuffleKey
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.flight_errors import error_named, from_flight
from mrflight.shuffle.wire.log_protocol import AppendReceipt, AppendTag, put_path
from mrflight.shuffle.wire.protocol import decode

STREAM_S = 7 * 24 * 3600.0
"""The timeout of a stream, which may stand still for as long as its producer has no event."""


class AppendStream:
    """Sends batches, and gives each receipt to ``received`` in a thread of its own.

    When the stream ends, ``received`` gets the error that ended it.
    """

    def __init__(
        self,
        key: ShuffleKey,
        location: str,
        schema: pa.Schema,
        options: ClientOptions,
        received: Callable[[AppendStream, AppendReceipt | MrflightError], None],
    ) -> None:
        self.schema = schema
        self.location = location
        self._what = f"append to event log {key.id}"
        self._received = received
        self._connections = Connections(options)
        self._writing = threading.Lock()  # Arrow's writer is for one thread at a time
        self._ended: MrflightError | None = None
        call = flight.FlightCallOptions(timeout=STREAM_S)
        descriptor = flight.FlightDescriptor.for_path(*put_path(key))
        with from_flight(location, self._what):
            client = self._connections.to(location)
            self._writer, self._reader = client.do_put(descriptor, schema, call)
        self._thread = threading.Thread(target=self._receive, name="appended", daemon=True)
        self._thread.start()

    def send(self, batch: pa.RecordBatch, tag: AppendTag) -> None:
        """Send a batch; blocks while the server catches up."""
        with self._writing, from_flight(self.location, self._what):
            self._check_open()
            self._writer.write_with_metadata(batch, msgspec.json.encode(tag))

    def end(self) -> None:
        """Send nothing more; the stream ends once all is answered."""
        with self._writing, from_flight(self.location, self._what):
            self._check_open()
            self._writer.done_writing()

    def _check_open(self) -> None:
        if self._ended is not None:
            raise self._ended

    def _receive(self) -> None:
        try:
            while (receipt := self._next()) is not None:
                self._received(self, receipt)
                if receipt.error:
                    break
            raise self._close()
        except MrflightError as error:
            self._received(self, error)
        finally:
            self._connections.abandon()

    def _next(self) -> AppendReceipt | None:
        with from_flight(self.location, self._what):
            body = self._reader.read()
        return None if body is None else decode(memoryview(body), AppendReceipt)

    def _close(self) -> MrflightError:
        """Return the error that the server has ended the stream with."""
        with self._writing:
            self._ended = ServerUnavailableError(
                f"{self._what}: {self.location} has ended the stream"
            )
            try:
                with from_flight(self.location, self._what):
                    self._writer.close()
            except MrflightError as error:
                self._ended = error  # who sends meanwhile gets it, too, and not that it has ended
            return self._ended


def receipt_error(receipt: AppendReceipt) -> MrflightError:
    """Return the error in a receipt."""
    found = error_named(receipt.error, receipt.message)
    return found or ProtocolError(f"{receipt.error[:64]}: {receipt.message}")
