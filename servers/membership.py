"""A data server's place in its cluster: registered, alive, and told what goes on.

A data server asks the metadata server two things: whether a shuffle is there,
once, before its first block, and which attempts have won since it last asked.
"""

from __future__ import annotations

import logging
import threading

import pyarrow as pa

from mrflight.errors import MrflightError, ProtocolError, ServerUnavailableError
from mrflight.ids import MapAttempt
from mrflight.shuffle.connections import Connections
from mrflight.shuffle.metadata_client import MetadataClient
from mrflight.shuffle.protocol import Heartbeat
from mrflight.shuffle.store import BlockStore

log = logging.getLogger(__name__)

HEARTBEAT_S = 1.0
JOIN_TIMEOUT_S = 30.0
_JOIN_RETRY_S = 0.02


class Membership:
    """Speaks to the metadata server for one data server. Safe for many threads."""

    def __init__(self, store: BlockStore, metadata: str) -> None:
        self._store = store
        self._connections = Connections()
        self._metadata = MetadataClient(metadata, self._connections)
        self._location = ""
        self._lock = threading.Lock()
        self._winners: dict[str, list[MapAttempt]] = {}
        self._stopping = threading.Event()
        self._heart = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def join(self, location: str) -> None:
        """Register as ``location``, waiting for a metadata server that still starts."""
        self._location = location
        for _ in range(int(JOIN_TIMEOUT_S / _JOIN_RETRY_S)):
            try:
                self._metadata.register_server(location)
                break
            except ServerUnavailableError:
                self._stopping.wait(_JOIN_RETRY_S)
        else:
            raise ServerUnavailableError(
                f"no metadata server at {self._metadata.location} after {JOIN_TIMEOUT_S:.0f} s; "
                "start it, or correct --metadata"
            )
        self._heart.start()

    def leave(self) -> None:
        """Take no new partitions; the server is about to stop."""
        self._stopping.set()
        self._heart.join()
        try:
            self._metadata.unregister_server(self._location)
        except MrflightError as error:
            log.info("left without telling the metadata server: %s", error)
        self._connections.close()

    def open(self, shuffle_id: str) -> None:
        """Open a shuffle in the store; ShuffleNotFoundError where there is none of this id."""
        if not self._store.is_open(shuffle_id):
            with self._lock:
                described = self._metadata.describe_shuffle(shuffle_id)
            self._store.open(shuffle_id, len(described.placement))

    def winners(self, shuffle_id: str, epoch: int) -> list[MapAttempt]:
        """The first ``epoch`` committed attempts of a shuffle."""
        with self._lock:
            known = self._winners.get(shuffle_id, [])
            last, since = known[-1:], max(len(known) - 1, 0)
            news = self._metadata.winners(shuffle_id, since)
            if last and last != news[:1]:
                # Another shuffle of this name: this server was not told that the first was dropped.
                known, news, since = [], self._metadata.winners(shuffle_id, 0), 0
            known = known[:since] + news
            self._winners[shuffle_id] = known
            if len(known) < epoch:
                raise ProtocolError(
                    f"a ticket of epoch {epoch}; shuffle {shuffle_id!r} is at {len(known)}"
                )
            return known[:epoch]

    def schema(self, shuffle_id: str) -> pa.Schema:
        """Of the rows of a shuffle."""
        with self._lock:
            return self._metadata.partitions(shuffle_id, only=0)[0]

    def forget(self, shuffle_id: str) -> None:
        """A shuffle is no more."""
        self._store.drop(shuffle_id)
        with self._lock:
            self._winners.pop(shuffle_id, None)

    def _beat(self) -> None:
        while not self._stopping.wait(HEARTBEAT_S):
            try:
                self._send_heartbeat()
            except MrflightError as error:
                log.warning("heartbeat: %s", error)

    def _send_heartbeat(self) -> None:
        held = Heartbeat(self._location, self._store.shuffles(), self._store.stats().size_bytes)
        with self._lock:
            answer = self._metadata.heartbeat(held)
            if not answer.registered:
                self._metadata.register_server(self._location)
        for shuffle_id in answer.drop:
            self.forget(shuffle_id)
