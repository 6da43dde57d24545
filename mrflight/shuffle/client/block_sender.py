"""Sends the blocks of one map attempt.

There is no thread for sending. One that let the next rows be partitioned meanwhile made no
difference to a single writer, and cost four per cent when every core had a map.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from mrflight.errors import (
    DeadlineExceededError,
    ServerUnavailableError,
    ShuffleNotFoundError,
    SpillError,
)
from mrflight.events.attempt_counts import COUNTS
from mrflight.ids import MapAttempt
from mrflight.shuffle.client.put_streams import PutStream, SharedPutStream
from mrflight.shuffle.wire.block import Block
from mrflight.shuffle.wire.calls import note_silence
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.tickets import BlockStream
from mrflight.shuffle.wire.transport import channel_to
from mrflight.system.deadlines import NO_RETRY

log = logging.getLogger(__name__)

_REPLICAS_SUFFICE = (
    DeadlineExceededError,
    ServerUnavailableError,
    ShuffleNotFoundError,  # it was declared lost, has dropped what it held, and is back
    SpillError,
)


class BlockSender:
    """One stream of blocks to each data server of a shuffle. Not safe for several threads.

    ``placement`` is the locations of each partition; a block goes to all of them. If a location
    fails, sending continues without it as long as every partition has another one.
    """

    def __init__(
        self,
        shuffle_id: str,
        source: MapAttempt,
        placement: Sequence[Sequence[str]],
        connections: Connections,
        token: str = "",
    ) -> None:
        self._shuffle_id = shuffle_id
        self._token = token
        self._source = source
        self._placement = placement
        self._connections = connections
        self._streams: dict[str, PutStream] = {}
        self.rows: npt.NDArray[np.int64] = np.zeros(len(placement), np.int64)
        """Rows sent so far, by partition."""
        self.bytes: npt.NDArray[np.int64] = np.zeros(len(placement), np.int64)
        """Bytes of the blocks sent so far, by partition, without replicas."""
        self.without: set[str] = set()
        """The locations that failed."""

    def send(self, partition: int, block: Block) -> None:
        """Send a block; blocks while a server catches up."""
        for location in self._placement[partition]:
            self._try_location(location, lambda at: self._send_to(at, partition, block))
        self.rows[partition] += block.rows
        self.bytes[partition] += block.body.size

    def finish(self) -> None:
        """Return once the servers have stored every block."""
        for location in list(self._streams):
            self._try_location(location, lambda at: self._streams[at].finish())

    def _try_location(self, location: str, do: Callable[[str], None]) -> None:
        """Call ``do``; a location that fails is left out if all its partitions have another one."""
        if location in self.without:
            return
        try:
            do(location)
        except _REPLICAS_SUFFICE as error:
            without = {*self.without, location}
            if any(without.issuperset(places) for places in self._placement):
                is_silent = note_silence(error, location, self._connections.identity)
                if is_silent and location in self._streams:
                    self._streams.pop(location).cancel()  # waiting for its end is in vain
                raise
            log.warning("going on without %s: %s", location, error)
            self.without = without
            if location in self._streams:
                self._streams[location].cancel()

    def stop(self) -> list[str]:
        """Stop sending at once, and return the servers that may hold blocks.

        Their streams have ended then, unless they do not answer.
        """
        until = time.monotonic() + NO_RETRY.call_s
        for ending in [stream.cancel() for stream in self._streams.values()]:
            ending.join(max(0.0, until - time.monotonic()))
        return list(self._streams)

    def _send_to(self, location: str, partition: int, block: Block) -> None:
        self._stream_to(location).send(partition, block)
        COUNTS.sent[location] += block.body.size

    def _stream_to(self, location: str) -> PutStream:
        stream = self._streams.get(location)
        if stream is None:
            stream = self._streams[location] = self._open(location)
        return stream

    def _open(self, location: str) -> PutStream:
        command = BlockStream(self._shuffle_id, *self._source, self._token)
        # A page of shared memory counts for one server.
        is_replicated = any(len(places) > 1 for places in self._placement)
        channel = None if is_replicated else channel_to(self._connections, location)
        if channel is None:
            return PutStream(self._connections, location, command)
        command = replace(command, channel=channel.key)
        return SharedPutStream(self._connections, location, command, channel)
