"""Flight clients, one per location, closed together."""

from __future__ import annotations

from pyarrow import flight

from mrflight.closing import Closes
from mrflight.shuffle.flight_errors import from_flight


class Connections(Closes):
    """Opens a client for a location once and keeps it until `close`. Not for several threads."""

    def __init__(self) -> None:
        self._clients: dict[str, flight.FlightClient] = {}

    def to(self, location: str) -> flight.FlightClient:
        """The client of ``location``; ServerUnavailableError where the location is none."""
        client = self._clients.get(location)
        if client is None:
            with from_flight(location, "connect"):
                client = flight.FlightClient(location)
            self._clients[location] = client
        return client

    def close(self) -> None:
        """Close every client; the connections can be used again afterwards."""
        while self._clients:
            self._clients.popitem()[1].close()
