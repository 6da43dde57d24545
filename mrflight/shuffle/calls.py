"""One Flight action: a message there, a message back, within a deadline."""

from __future__ import annotations

from enum import StrEnum

import msgspec
from pyarrow import flight

from mrflight.errors import ProtocolError
from mrflight.shuffle.connections import Connections
from mrflight.shuffle.flight_errors import from_flight
from mrflight.shuffle.protocol import M, Message, decode


def call(
    connections: Connections,
    location: str,
    action: StrEnum,
    request: Message,
    answer: type[M],
) -> M:
    """Send ``request`` and wait for its answer.

    Raises the error that the server answered, ServerUnavailableError or
    DeadlineExceededError.
    """
    options = flight.FlightCallOptions(timeout=connections.timeouts.call_s)
    with from_flight(location, action.value):
        body = msgspec.json.encode(request)
        results = list(connections.to(location).do_action((action.value, body), options))
    if len(results) != 1:
        raise ProtocolError(f"{action}: {location} gave {len(results)} answers, not one")
    return decode(memoryview(results[0].body), answer)
