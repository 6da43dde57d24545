"""Streams that their reader abandons."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyarrow import flight

from mrflight.shuffle.wire.stall_detector import StallDetector
from tests.support.suite.waiting import hang_s

ROWS = pa.record_batch({"n": pa.array(range(100_000))})


class EndlessServer(flight.FlightServerBase):
    """A server whose streams have more than a connection buffers before it is read."""

    def do_get(self, context: object, ticket: flight.Ticket) -> flight.FlightDataStream:
        return flight.GeneratorStream(ROWS.schema, self._rows())

    def _rows(self) -> Iterator[pa.RecordBatch]:
        while True:
            yield ROWS


@pytest.mark.parametrize("ending", ["closed", "failed"])
def test_an_abandoned_stream_ends_at_the_server(ending: str) -> None:
    """The detector may hold such a stream for as long as no other stream is read."""
    held: list[flight.FlightStreamReader] = []
    # It needs its own address: by default a server takes a port of either loopback address, and
    # another server may have that port of the address that the client calls.
    with (
        EndlessServer("grpc+tcp://127.0.0.1:0") as server,
        flight.FlightClient(("127.0.0.1", server.port)) as client,
    ):

        def open_stream() -> flight.FlightStreamReader:
            held.append(client.do_get(flight.Ticket(b"all")))
            return held[0]

        messages = StallDetector().messages(open_stream, hang_s())
        assert next(messages).data == ROWS
        if ending == "closed":
            messages.close()
        else:
            with pytest.raises(KeyError):
                messages.throw(KeyError("a reader's own"))
        ends = threading.Thread(target=server.shutdown, daemon=True)
        ends.start()
        ends.join(hang_s())
        is_shut_down = not ends.is_alive()
        held.clear()  # or the server would never end
    assert is_shut_down
