"""A data server's place in its cluster: registered, alive, and told what goes on.

A data server asks the metadata server two things: whether a shuffle is there,
once, before its first block, and which attempts have won since it last asked.
"""

from __future__ import annotations

import logging
import secrets
import threading

import pyarrow as pa

from mrflight.errors import MrflightError, ProtocolError, ServerUnavailableError
from mrflight.ids import MapAttempt
from mrflight.shuffle.connections import Connections
from mrflight.shuffle.metadata_client import MetadataClient
from mrflight.shuffle.protocol import Heartbeat
from mrflight.shuffle.shuffle_state import MapCommit
from mrflight.shuffle.store import BlockStore
from mrflight.timeouts import Timeouts

log = logging.getLogger(__name__)

HEARTBEAT_S = 0.5
HEARTBEAT_TIMEOUT_S = 2.0
"""Of a call: the next one is made over a new connection, which a network that is back takes."""


class Membership:
    """Speaks to the metadata server for one data server. Safe for many threads."""

    def __init__(self, store: BlockStore, metadata: str) -> None:
        self._store = store
        self._stopping = threading.Event()
        self._connections = Connections()
        patience_s = self._connections.timeouts.reconnect_s
        self._metadata = MetadataClient(metadata, self._connections, patience_s, self._stopping)
        self._heart_connections = Connections(Timeouts(call_s=HEARTBEAT_TIMEOUT_S))
        self._heartbeats = MetadataClient(metadata, self._heart_connections)
        self._location = ""
        self._incarnation = secrets.token_hex(8)
        self._lock = threading.Lock()  # of what requests use: the heart has its own connection
        self._commits: dict[str, list[MapCommit]] = {}
        self._heart = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def join(self, location: str) -> None:
        """Register as ``location``, waiting for a metadata server that still starts."""
        self._location = location
        try:
            self._metadata.register_server(location, self._incarnation)
        except ServerUnavailableError as error:
            raise ServerUnavailableError(
                f"no metadata server at {self._metadata.location} after "
                f"{self._connections.timeouts.reconnect_s:.0f} s; start it, or correct --metadata"
            ) from error
        self._heart.start()

    @property
    def location(self) -> str:
        """Where clients reach this server."""
        return self._location

    def drain(self) -> None:
        """Take no new partitions from now on. Heartbeats go on."""
        try:
            self._heartbeats.drain_server(self._location)
        except MrflightError as error:
            log.info("stopping without telling the metadata server: %s", error)

    def leave(self) -> None:
        """Be no data server any more: what is still held is lost."""
        self._stopping.set()
        self._heart.join()
        try:
            self._heartbeats.unregister_server(self._location, self._incarnation)
        except MrflightError as error:
            log.info("left without telling the metadata server: %s", error)
        self._connections.close()
        self._heart_connections.close()

    def open(self, shuffle_id: str) -> None:
        """Open a shuffle in the store; ShuffleNotFoundError where there is none of this id."""
        if not self._store.is_open(shuffle_id):
            with self._lock:
                described = self._metadata.describe_shuffle(shuffle_id)
            self._store.open(shuffle_id, len(described.placement))

    def winners(self, shuffle_id: str, epoch: int, generation: int = 0) -> list[MapAttempt]:
        """The attempts that count for partitions of a generation, of the first ``epoch``."""
        with self._lock:
            known = self._commits.get(shuffle_id, [])
            last, since = known[-1:], max(len(known) - 1, 0)
            news = self._metadata.commits(shuffle_id, since)
            if last and last != news[:1]:
                # Another shuffle of this name: this server was not told that the first was dropped.
                known, news, since = [], self._metadata.commits(shuffle_id, 0), 0
            known = known[:since] + news
            self._commits[shuffle_id] = known
        if len(known) < epoch:
            raise ProtocolError(
                f"a ticket of epoch {epoch}; shuffle {shuffle_id!r} is at {len(known)}"
            )
        return [commit.source for commit in known[:epoch] if commit.counts_for(generation)]

    def schema(self, shuffle_id: str, partition: int) -> pa.Schema:
        """Of the rows of a shuffle, which are those of every partition."""
        with self._lock:
            return self._metadata.partitions(shuffle_id, only=partition)[0]

    def forget(self, shuffle_id: str) -> None:
        """A shuffle is no more."""
        self._store.drop(shuffle_id)
        with self._lock:
            self._commits.pop(shuffle_id, None)

    def _beat(self) -> None:
        while not self._stopping.wait(HEARTBEAT_S):
            try:
                self._send_heartbeat()
            except MrflightError as error:
                log.warning("heartbeat: %s", error)

    def _send_heartbeat(self) -> None:
        held = Heartbeat(
            self._location,
            self._store.shuffles(),
            self._store.stats().size_bytes,
            self._incarnation,
        )
        answer = self._heartbeats.heartbeat(held)
        if not answer.registered and not self._stopping.is_set():
            for shuffle_id in held.shuffles:
                self.forget(shuffle_id)  # it was given up: all of it has been placed elsewhere
            self._heartbeats.register_server(self._location, self._incarnation)
        for shuffle_id in answer.drop:
            self.forget(shuffle_id)
