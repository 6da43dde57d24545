"""Flight clients, one per location, closed together."""

from __future__ import annotations

from pyarrow import flight

from mrflight.shuffle.wire.flight_errors import from_flight
from mrflight.shuffle.wire.keepalive import Keepalive
from mrflight.system.closeable import Closeable
from mrflight.system.deadlines import DEFAULT_TIMEOUTS, Timeouts

_MOST_IDLE = 64

_UNIX = "grpc+unix:"
_SILENCE_MS = 15_000
"""A connection whose other end acknowledges nothing for so long has failed.

Above the heartbeats' usual 10 s, so that the loss of a server that is gone for all, which fails
no attempt, comes first.
"""
_PULSE_EVERY_S = 5.0
_CONNECT_MS = 10_000
"""For gRPC's 20 s: with 1, 2 and 4 s between them four attempts to be heard, three of them lost."""
_NO_PINGS_MS = 3_600_000
"""gRPC sets TCP_USER_TIMEOUT only where it may ping, for which servers end connections."""
_CHANNEL_OPTIONS = [
    ("grpc.keepalive_time_ms", _NO_PINGS_MS),
    ("grpc.keepalive_timeout_ms", _SILENCE_MS),
    ("grpc.min_reconnect_backoff_ms", _CONNECT_MS),
]

_pulse = Keepalive(_PULSE_EVERY_S)

_idle: dict[str, flight.FlightClient] | None = None
"""In a worker or a driver: what will be connected to again."""


def keep_idle() -> None:
    """Keep what is closed for the next one to use, in any thread, until the process ends.

    For a worker, whose tasks all connect alike, and for the driver of one job. To connect takes
    3 ms, and a task may be as short as some tens.
    """
    global _idle
    _idle = {}


class Connections(Closeable):
    """Opens a client for a location once and keeps it until `close`. Not for several threads.

    Whoever calls through these waits as long as ``timeouts`` say.
    """

    def __init__(self, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> None:
        self.timeouts = timeouts
        self._clients: dict[str, flight.FlightClient] = {}

    def to(self, location: str) -> flight.FlightClient:
        """The client of ``location``; ServerUnavailableError where the location is none."""
        client = self._clients.get(location)
        if client is None:
            client = _idle.pop(location, None) if _idle else None
            if client is None:
                with from_flight(location, "connect"):
                    client = flight.FlightClient(location, generic_options=_CHANNEL_OPTIONS)
            self._clients[location] = client
            if not location.startswith(_UNIX):  # those have no network to fail
                _pulse.add(client)
        return client

    def close(self) -> None:
        """Let go of every client; the connections can be used again afterwards."""
        while self._clients:
            location, client = self._clients.popitem()
            if _idle is not None and location not in _idle and len(_idle) < _MOST_IDLE:
                _pulse.remove(client)
                _idle[location] = client
            else:
                _pulse.close_client(client)

    def forget(self, location: str) -> None:
        """Close the client of a location, which has failed; the next one is new.

        A connection that has failed waits longer and longer before it tries again.
        """
        client = self._clients.pop(location, None)
        if client is not None:
            _pulse.close_client(client)

    def abandon(self) -> None:
        """Close every client for good: something went wrong, with one of them perhaps."""
        for location in list(self._clients):
            self.forget(location)
