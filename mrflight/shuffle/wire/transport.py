"""Whether the blocks of a stream are passed in shared memory, or inside of its Flight messages.

That is decided once for each connection, by trying it: the data server says where it listens for
processes of its own machine, and a client that can connect there, and reads from memory what the
server wrote into it, shares memory with it. On another machine, in a container with a network of
its own, or as another user it can't, and blocks go over Flight.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from mrflight.errors import JobError, ProtocolError
from mrflight.shuffle.wire.calls import call
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.protocol import DataAction, Done, SharedMemoryOffer
from mrflight.shuffle.wire.tickets import ChannelKey
from mrflight.system.segment_channel import SegmentChannel, open_channel
from mrflight.system.shared_memory import IS_SUPPORTED

log = logging.getLogger(__name__)

_NONE = SharedMemoryOffer()


class StreamChannel(NamedTuple):
    """The channel of one stream, and its key for the stream's descriptor or ticket."""

    key: ChannelKey
    segments: SegmentChannel


def channel_to(connections: Connections, location: str) -> StreamChannel | None:
    """Return a channel for a stream of blocks; None if the stream carries its blocks itself.

    Raises the errors of `call`, and JobError if the transport is ``shared`` and there is no shared
    memory.
    """
    if connections.transport == "flight":
        return None
    connection = connections.connection(location)
    if connection.offer is None:
        connection.offer = _ask(connections, location)
    reason = "the server offers none"
    if connection.offer.name:
        try:
            key, channel = open_channel(connection.offer.name, connection.offer.proof)
        except (OSError, ValueError) as error:
            reason = str(error)
            connection.offer = _NONE
        else:
            return StreamChannel(key.hex(), channel)
    if connections.transport == "shared":
        raise JobError(
            f'the transport is "shared", and this process shares no memory with {location}: '
            f'{reason}; set cluster.transport to "auto"'
        )
    log.debug("blocks of %s go over Flight: %s", location, reason)
    return None


def _ask(connections: Connections, location: str) -> SharedMemoryOffer:
    if not IS_SUPPORTED:
        return _NONE
    try:
        return call(connections, location, DataAction.SHARED_MEMORY, Done(), SharedMemoryOffer)
    except ProtocolError as error:  # the server of another version does not know the action
        log.debug("%s shares no memory: %s", location, error)
        return _NONE
