"""Whether the blocks of a stream are passed in shared memory, or inside of its Flight messages.

That is decided once for each connection, by trying it: the data server says where it listens for
processes of its own machine, and a client that can connect there, and reads from memory what the
server wrote into it, shares memory with it. On another machine, in a container with a network of
its own, or as another user it can't, and blocks go over Flight.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from typing import NamedTuple

from mrflight.errors import (
    DeadlineExceededError,
    JobError,
    MrflightError,
    ProtocolError,
    ServerUnavailableError,
)
from mrflight.shuffle.wire.calls import call
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.protocol import DataAction, Done, SharedMemoryOffer
from mrflight.shuffle.wire.tickets import ChannelKey
from mrflight.system.segment_channel import SegmentChannel, open_channel
from mrflight.system.shared_memory import IS_SUPPORTED

log = logging.getLogger(__name__)

_NONE = SharedMemoryOffer()
_MAY_BE_LATER = (TimeoutError, ConnectionResetError, BrokenPipeError)
"""The errors of a server that hangs, has just ended, or has too many segments on their way."""
_GREETING_S = 5.0
"""How long a client waits for a server to accept its channel."""


class StreamChannel(NamedTuple):
    """The channel of one stream, and its key for the stream's descriptor or ticket."""

    key: ChannelKey
    segments: SegmentChannel


def channel_to(
    connections: Connections, location: str, answer_s: float = math.inf
) -> StreamChannel | None:
    """Return a channel for a stream of blocks; None if the stream carries its blocks itself.

    The server is asked what it offers with the timeout of calls, or ``answer_s`` if that is less.
    Raises the errors of `call`. With the transport ``shared`` it raises JobError if there is no
    shared memory, and DeadlineExceededError or ServerUnavailableError if there may be some later.
    """
    if connections.transport == "flight":
        return None
    reason = "the server offers none"
    timeout_s = min(_GREETING_S, connections.timeouts.stream_s)
    for offer in _offers(connections, location, answer_s):
        try:
            key, channel = open_channel(offer.name, offer.proof, timeout_s)
        except _MAY_BE_LATER as error:
            if connections.transport == "shared":
                raise _unavailable(location, error) from error
            return None  # over Flight it is learnt whether the server is alive
        except (OSError, ValueError) as error:
            reason = str(error)
        else:
            connections.connection(location).offer = offer
            return StreamChannel(key.hex(), channel)
    if connections.transport == "shared":
        raise JobError(
            f'the transport is "shared", and this process shares no memory with {location}: '
            f'{reason}; set cluster.transport to "auto"'
        )
    connections.connection(location).offer = _NONE
    log.debug("blocks of %s go over Flight: %s", location, reason)
    return None


def _offers(
    connections: Connections, location: str, answer_s: float
) -> Iterator[SharedMemoryOffer]:
    """Yield what a server offers, and again if that could not be taken and has changed.

    The server may have ended, which asking it raises, and another one may have taken its place.
    """
    first = connections.connection(location).offer or _ask(connections, location, answer_s)
    if first.name:
        yield first
        again = _ask(connections, location, answer_s)
        if again.name and again != first:
            yield again


def _unavailable(location: str, reason: OSError) -> MrflightError:
    error: MrflightError
    if isinstance(reason, TimeoutError):
        error = DeadlineExceededError(f"shared memory: {location} did not answer in time")
    else:
        error = ServerUnavailableError(f"shared memory: {location} cannot be reached: {reason}")
    error.location = location
    return error


def _ask(connections: Connections, location: str, answer_s: float) -> SharedMemoryOffer:
    if not IS_SUPPORTED:
        return _NONE
    try:
        action = DataAction.SHARED_MEMORY
        return call(connections, location, action, Done(), SharedMemoryOffer, answer_s)
    except ProtocolError as error:  # the server of another version does not know the action
        log.debug("%s shares no memory: %s", location, error)
        return _NONE
