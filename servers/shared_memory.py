"""The memory that a data server shares with processes of its machine, for streams of blocks."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from mrflight.errors import ProtocolError, ServerUnavailableError
from mrflight.shuffle.wire.protocol import SharedMemoryOffer
from mrflight.shuffle.wire.tickets import ChannelKey
from mrflight.system.closeable import Closeable
from mrflight.system.segment_channel import SegmentChannel, SegmentListener
from mrflight.system.shared_memory import IS_SUPPORTED

log = logging.getLogger(__name__)


class SharedMemory(Closeable):
    """Accepts channels, where the system has shared memory, and gives them to streams."""

    def __init__(self) -> None:
        self._listener: SegmentListener | None = None
        if IS_SUPPORTED:
            try:
                self._listener = SegmentListener()
            except OSError as error:  # for example, a sandbox that has no such sockets
                log.info("blocks go over Flight only: %s", error)

    @property
    def offer(self) -> SharedMemoryOffer:
        if self._listener is None:
            return SharedMemoryOffer()
        return SharedMemoryOffer(self._listener.name, self._listener.proof)

    @contextmanager
    def channel(self, key: ChannelKey) -> Iterator[SegmentChannel | None]:
        """Give a stream its channel until it ends; None if it has no key.

        Raises ProtocolError if there is no channel with this key, and ServerUnavailableError for
        one whose other end is gone or does not go on, or if too many files are open.
        """
        if not key:
            yield None
            return
        channel = self._listener.take(bytes.fromhex(key)) if self._listener else None
        if channel is None:
            raise ProtocolError("there is no channel with the key of this stream; open it again")
        with channel:
            try:
                yield channel
            except (ConnectionError, TimeoutError) as error:
                raise ServerUnavailableError(f"the other end of a channel: {error}") from error

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
