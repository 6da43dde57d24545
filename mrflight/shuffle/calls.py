"""Flight actions: a message there, a message back, within a deadline."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec
from pyarrow import flight

from mrflight.errors import MrflightError, ProtocolError
from mrflight.interruptible import interruptibly
from mrflight.shuffle.connections import Connections
from mrflight.shuffle.flight_errors import from_flight
from mrflight.shuffle.protocol import Done, M, Message, decode
from mrflight.timeouts import AT_ONCE


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
        client = connections.to(location)
        results = interruptibly(lambda: list(client.do_action((action.value, body), options)))
    if len(results) != 1:
        raise ProtocolError(f"{action}: {location} gave {len(results)} answers, not one")
    return decode(memoryview(results[0].body), answer)


def tell(locations: Iterable[str], action: StrEnum, request: Message) -> dict[str, MrflightError]:
    """Send ``request`` to each server, with little time for it; the errors of those that failed.

    For what they would learn in another way as well, or never have to.
    """
    failed: dict[str, MrflightError] = {}
    with Connections(AT_ONCE) as hasty:  # a connection that is there may be what went wrong
        for location in locations:
            try:
                call(hasty, location, action, request, Done)
            except MrflightError as error:
                hasty.forget(location)
                failed[location] = error
    return failed
