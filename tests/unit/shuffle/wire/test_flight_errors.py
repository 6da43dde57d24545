"""The errors that a server's handler raises, and those that its client raises for them."""

from __future__ import annotations

import errno
import logging
import socket
import threading
import warnings
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from mrflight import errors
from mrflight.errors import MrflightError, ProtocolError, ServerUnavailableError
from mrflight.shuffle.wire.flight_errors import answer_errors, from_flight, to_flight
from tests.support.suite.messages import refused
from tests.support.suite.waiting import hang_s

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
def test_an_error_for_want_of_memory_is_retryable(name: str) -> None:
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


@pytest.mark.parametrize("scheme", ["grpc+tcp", "grpc+tls"])
def test_a_machine_that_answers_nothing_is_told_from_one_that_refuses(scheme: str) -> None:
    with socket.socket() as silent, ExitStack() as waiting:
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)
        for _ in range(3):  # more than may wait: from then on Linux answers nobody
            caller = waiting.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(silent.getsockname())
        location = f"{scheme}://127.0.0.1:{silent.getsockname()[1]}"
        soon = [("grpc.min_reconnect_backoff_ms", 300)]
        with (
            flight.FlightClient(location, generic_options=soon) as client,
            refused(ServerUnavailableError),
            from_flight(location, "ask"),
        ):
            list(client.do_action(("ask", b"")))


class LateServer(flight.FlightServerBase):
    """Answers a put once its client is gone."""

    def __init__(self) -> None:
        self.begun, self.failed = threading.Event(), threading.Event()
        super().__init__("grpc+tcp://127.0.0.1:0")

    def do_put(self, context: Any, *of_put: Any) -> None:
        self.begun.set()
        try:
            self._answer(context, of_put[-1])
        finally:
            self.failed.set()

    @answer_errors
    def _answer(self, context: Any, writer: flight.FlightMetadataWriter) -> None:
        while True:  # writes succeed until the client is known to be gone
            writer.write(b"receipt")


def test_a_client_that_is_gone_is_not_logged_as_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mrflight")
    server = LateServer()
    try:
        with flight.FlightClient(f"grpc+tcp://127.0.0.1:{server.port}") as client:
            schema = pa.schema([("n", pa.int64())])
            options = flight.FlightCallOptions(timeout=0.5)
            put = flight.FlightDescriptor.for_path("put")
            while not server.begun.is_set():  # the time of a put may pass before it has begun
                writer, _ = client.do_put(put, schema, options)
                server.begun.wait(1.0)
            assert server.failed.wait(hang_s())
            with pytest.raises((flight.FlightError, pa.ArrowException)):
                writer.close()
    finally:
        server.shutdown()
    assert caplog.records
    for record in caplog.records:
        assert (record.levelno, record.exc_info) == (logging.INFO, None)
        assert "the client of LateServer._answer is gone" in record.message


@pytest.mark.parametrize(
    "error", [OSError("disk"), OSError(errno.EIO, "Unknown error writing metadata."), KeyError(1)]
)
def test_every_other_failure_is_logged_in_full(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    @answer_errors
    def handler() -> None:
        raise error

    with pytest.raises(type(error)):
        handler()
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None


@pytest.mark.parametrize("wire_name", ["AttemptLostError", "OutputLostError", "StoreError"])
def test_errors_keep_their_names_of_the_wire_contract(wire_name: str) -> None:
    """Classes were renamed; what plain Flight clients see was not."""
    with warnings.catch_warnings(action="ignore"):
        kind = getattr(errors, wire_name)
    sent = to_flight(kind("gone"))
    assert f'"error":"{wire_name}"'.encode() in sent.extra_info
    with pytest.raises(kind, match="gone") as raised, from_flight("grpc://a", "ask"):
        raise sent
    assert type(raised.value) is kind


def test_an_old_name_of_an_error_still_works_and_warns() -> None:
    with pytest.warns(DeprecationWarning, match="MapsMissingError is now MapOutputMissingError"):
        assert getattr(errors, "Maps" + "MissingError") is errors.MapOutputMissingError
    with refused(AttributeError):
        getattr(errors, "No" + "Error")
