"""What a server's handler raises, and what its client raises for it."""

from __future__ import annotations

import errno
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from mrflight.errors import MrflightError, ProtocolError, ServerUnavailableError
from mrflight.shuffle.flight_errors import answer_errors, from_flight

RAISED: dict[str, Exception] = {
    "python": MemoryError("no room for an object"),
    "pages": OSError(errno.ENOMEM, "no room for pages"),
    "arrow": pa.lib.ArrowMemoryError("malloc of size 1 failed"),
    "invalid": pa.ArrowInvalid("no column"),
}


class RaisingServer(flight.FlightServerBase):
    @answer_errors
    def do_action(self, context: Any, action: flight.Action) -> list[bytes]:
        raise RAISED[action.type]


@pytest.mark.parametrize("name", RAISED)
def test_a_server_without_memory_may_have_some_later(name: str) -> None:
    server = RaisingServer("grpc+tcp://127.0.0.1:0")
    try:
        location = f"grpc+tcp://127.0.0.1:{server.port}"
        with (
            flight.FlightClient(location) as client,
            pytest.raises(MrflightError) as raised,
            from_flight(location, "ask"),
        ):
            list(client.do_action((name, b"")))
    finally:
        server.shutdown()
    kind = ProtocolError if name == "invalid" else ServerUnavailableError
    assert type(raised.value) is kind
    assert raised.value.retryable == (kind is ServerUnavailableError)
