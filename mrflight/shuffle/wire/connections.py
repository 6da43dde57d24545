"""Flight clients, one per location, closed together."""

from __future__ import annotations

from pyarrow import flight

from mrflight.config.identity import ClientOptions, Identity
from mrflight.shuffle.wire import idle_connections
from mrflight.shuffle.wire.flight_errors import from_flight
from mrflight.shuffle.wire.idle_connections import Connection
from mrflight.shuffle.wire.keepalive import Keepalive
from mrflight.shuffle.wire.secure_client import open_client
from mrflight.system.closeable import Closeable

_MAX_IDLE = 64

_UNIX = "grpc+unix:"
_ACK_TIMEOUT_MS = 15_000
"""A connection whose other end acknowledges nothing for so long has failed.

This is above the usual heartbeat timeout of 10 s. So a server that is gone for everybody is
declared lost first, which fails no attempt.
"""
_KEEPALIVE_EVERY_S = 5.0
_CONNECT_MS = 10_000
"""The time for a connection, instead of gRPC's 20 s. It is enough for four attempts, with 1, 2 and
4 s between them, of which three may be lost."""
_NO_PINGS_MS = 3_600_000
"""gRPC sets TCP_USER_TIMEOUT only if it may ping, and servers end connections that ping."""
_CHANNEL_OPTIONS = [
    ("grpc.keepalive_time_ms", _NO_PINGS_MS),
    ("grpc.keepalive_timeout_ms", _ACK_TIMEOUT_MS),
    ("grpc.min_reconnect_backoff_ms", _CONNECT_MS),
]

OVER_FLIGHT = ClientOptions(transport="flight")

_keepalive = Keepalive(_KEEPALIVE_EVERY_S)


class Connections(Closeable):
    """Opens a client for a location once, and keeps it until `close`. Not safe for several threads.

    Calls over these connections use the ``timeouts`` of ``options``, and streams of blocks use the
    ``transport``.
    """

    def __init__(self, options: ClientOptions = OVER_FLIGHT) -> None:
        self.timeouts = options.timeouts
        self.transport = options.transport
        self.identity = options.identity
        self._connections: dict[str, Connection] = {}

    def to(self, location: str) -> flight.FlightClient:
        """Return the client of a location; raise ServerUnavailableError if it is not valid."""
        return self.connection(location).client

    def connection(self, location: str) -> Connection:
        """Return the connection to a location; raise ServerUnavailableError if it is not valid."""
        connection = self._connections.get(location)
        if connection is None:
            connection = _idle(location, self.identity)
            if connection is None:
                with from_flight(location, "connect"):
                    client = open_client(location, self.identity, _CHANNEL_OPTIONS)
                connection = Connection(client)
            self._connections[location] = connection
            if not location.startswith(_UNIX):  # a unix socket has no network that could fail
                _keepalive.add(connection.client)
        return connection

    def close(self) -> None:
        """Close every client; the connections can be used again afterwards."""
        while self._connections:
            location, connection = self._connections.popitem()
            kept, key = idle_connections.kept, (location, self.identity)
            if kept is not None and key not in kept and len(kept) < _MAX_IDLE:
                _keepalive.remove(connection.client)
                kept[key] = connection
            else:
                _keepalive.close_client(connection.client)

    def forget(self, location: str) -> None:
        """Close the client of a location that has failed, so that the next one is new.

        A connection that has failed waits longer and longer before it tries again.
        """
        connection = self._connections.pop(location, None)
        if connection is not None:
            _keepalive.close_client(connection.client)

    def abandon(self) -> None:
        """Close every client without keeping it, because one of them may have failed."""
        for location in list(self._connections):
            self.forget(location)


def _idle(location: str, identity: Identity) -> Connection | None:
    """Return an idle connection to a location, which is then in use."""
    kept = idle_connections.kept
    return kept.pop((location, identity), None) if kept else None
