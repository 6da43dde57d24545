"""Calls of Flight actions: one message each way, within a deadline."""

from __future__ import annotations

import math
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum

import msgspec
from pyarrow import flight

from mrflight.config.identity import ClientOptions, Endpoint, Identity
from mrflight.errors import (
    DeadlineExceededError,
    MrflightError,
    ProtocolError,
    ServerUnavailableError,
)
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.flight_errors import from_flight
from mrflight.shuffle.wire.protocol import DataAction, Done, M, Message, decode
from mrflight.system.deadlines import NO_RETRY
from mrflight.system.signals import run_interruptibly


def call(
    connections: Connections,
    location: str,
    action: StrEnum,
    request: Message,
    answer: type[M],
    timeout_s: float = math.inf,
) -> M:
    """Send ``request`` and return the answer, within ``timeout_s`` or the timeout of calls.

    Raises the error that the server answered, ServerUnavailableError or
    DeadlineExceededError.
    """
    options = flight.FlightCallOptions(timeout=min(connections.timeouts.call_s, timeout_s))
    with from_flight(location, action.value):
        body = msgspec.json.encode(request)
        client = connections.to(location)
        results = run_interruptibly(lambda: list(client.do_action((action.value, body), options)))
    if len(results) != 1:
        raise ProtocolError(f"{action}: {location} gave {len(results)} answers, not one")
    return decode(memoryview(results[0].body), answer)


def notify(
    locations: Iterable[str], action: StrEnum, request: Message, identity: Identity
) -> dict[str, MrflightError]:
    """Send ``request`` to all servers at once with a short timeout, and return the errors.

    It is for news that servers also get in another way, or can do without. Many silent servers
    take no longer than one.
    """
    servers = list(dict.fromkeys(locations))
    if not servers:
        return {}
    with ThreadPoolExecutor(len(servers), "notify") as threads:
        failures = threads.map(
            lambda location: _notify(Endpoint(location, identity), action, request), servers
        )
        return {location: error for location, error in zip(servers, failures, strict=True) if error}


def note_silence(error: MrflightError, location: str, identity: Identity) -> bool:
    """Note in a server's error whether it is silent at a new connection, too, and return that.

    Only this process can know that: the metadata server may still reach it. A server that has
    ended is not silent, because its machine refuses the connection. Takes up to 2 s.
    """
    if isinstance(error, ServerUnavailableError):
        failed = notify([location], DataAction.KEEPALIVE, Done(), identity)
        error.is_silent = isinstance(failed.get(location), DeadlineExceededError)
        return error.is_silent
    return False


def _notify(server: Endpoint, action: StrEnum, request: Message) -> MrflightError | None:
    location, options = server.location, ClientOptions(NO_RETRY, "flight", server.identity)
    with Connections(options) as connections:  # an existing connection may be what failed
        try:
            call(connections, location, action, request, Done)
        except MrflightError as error:
            connections.forget(location)
            return error
    return None
