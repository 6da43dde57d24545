"""Flight clients, one per location, closed together."""

from __future__ import annotations

from types import TracebackType

from pyarrow import flight

from mrflight.closing import Closes
from mrflight.shuffle.flight_errors import from_flight
from mrflight.timeouts import DEFAULT_TIMEOUTS, Timeouts

_MOST_IDLE = 64

_idle: dict[str, flight.FlightClient] | None = None
"""In a worker: what the next task will connect to."""


def keep_idle() -> None:
    """Keep what is closed for the next one to use; for a worker, whose tasks all connect alike.

    To connect takes 3 ms, and a task may be as short as some tens.
    """
    global _idle
    _idle = {}


class Connections(Closes):
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
                    client = flight.FlightClient(location)
            self._clients[location] = client
        return client

    def close(self) -> None:
        """Let go of every client; the connections can be used again afterwards."""
        while self._clients:
            location, client = self._clients.popitem()
            if _idle is not None and location not in _idle and len(_idle) < _MOST_IDLE:
                _idle[location] = client
            else:
                client.close()

    def forget(self, location: str) -> None:
        """Close the client of a location, which has failed; the next one is new.

        A connection that has failed waits longer and longer before it tries again.
        """
        client = self._clients.pop(location, None)
        if client is not None:
            client.close()

    def abandon(self) -> None:
        """Close every client for good: something went wrong, with one of them perhaps."""
        for location in list(self._clients):
            self.forget(location)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abandon()
