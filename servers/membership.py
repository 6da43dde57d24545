"""A data server's membership in its cluster: registration, heartbeats, and what it asks.

A data server asks the metadata server two things: whether a shuffle exists,
once, before its first block, and which attempts were committed since it last asked.
"""

from __future__ import annotations

import logging
import math
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from queue import SimpleQueue

import pyarrow as pa

from mrflight.config.identity import ClientOptions
from mrflight.errors import InconsistentMapOutputError, MrflightError, ServerUnavailableError
from mrflight.ids import MapAttempt, same_token
from mrflight.shuffle.client.metadata_client import MetadataClient
from mrflight.shuffle.store.block_store import BlockStore
from mrflight.shuffle.store.stored_shuffle import StoredShuffle
from mrflight.shuffle.wire.cluster_status import Heartbeat, StoreUse
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.partition_info import MapCommit
from mrflight.system.deadlines import Timeouts

log = logging.getLogger(__name__)

HEARTBEAT_S = 0.5
HEARTBEAT_TIMEOUT_S = 2.0
"""The timeout of a call. The next call uses a new connection, which works once the network does."""


class Membership:
    """Talks to the metadata server for one data server. Safe for many threads.

    The heartbeat thread waits for no request and for no disk.
    """

    def __init__(
        self,
        store: BlockStore,
        metadata: str,
        client: ClientOptions | None = None,
        log_store: str = "",
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        """``log_store`` is the id of this server's folder of event logs; empty if it has none.

        ``heartbeat_s`` is the time between two heartbeats.
        """
        self.client = client or ClientOptions()
        """How this server talks to others."""
        self._store = store
        self._log_store = log_store
        self._heartbeat_s = heartbeat_s
        self._renewed_at = -math.inf
        self._stopping = threading.Event()
        self._is_draining = False
        self._is_drain_reported = False  # by the heartbeat thread
        self._is_answered = False
        self._connections = Connections(self.client)
        retry_for_s = self.client.timeouts.reconnect_s
        self._metadata = MetadataClient(metadata, self._connections, retry_for_s, self._stopping)
        self._hasty = self.client.with_timeouts(Timeouts(call_s=HEARTBEAT_TIMEOUT_S))
        self._heart_connections = Connections(self._hasty)
        self._heartbeats = MetadataClient(metadata, self._heart_connections)
        self._location = ""
        self._incarnation = secrets.token_hex(8)
        self._metadata_lock = threading.Lock()  # lets one request at a time use `_metadata`
        self._commits_lock = threading.Lock()  # no call is made while it is held
        self._commits: dict[str, list[MapCommit]] = {}
        self._heartbeat_thread = threading.Thread(
            target=self._send_heartbeats, name="heartbeat", daemon=True
        )
        self._forgotten: SimpleQueue[StoredShuffle | None] = SimpleQueue()
        self._removal = threading.Thread(target=self._remove_files, name="removal", daemon=True)

    def join(self, location: str) -> None:
        """Register as ``location``; wait for a metadata server that is still starting."""
        self._location = location
        try:
            self._register(self._metadata, location)
        except ServerUnavailableError as error:
            raise ServerUnavailableError(
                f"no metadata server at {self._metadata.location} after "
                f"{self._connections.timeouts.reconnect_s:.0f} s; start it, or correct --metadata"
            ) from error
        self._is_answered = True
        self._removal.start()
        self._heartbeat_thread.start()

    def _register(self, metadata: MetadataClient, location: str) -> None:
        began_at = time.monotonic()
        metadata.register_server(location, self._incarnation, self._log_store)
        self._renewed_at = began_at

    def has_lease(self, lease_s: float) -> bool:
        """Return whether the metadata server cannot have declared this server lost by now.

        It can once ``lease_s`` have passed since the last heartbeat that it answered.
        """
        return time.monotonic() - self._renewed_at < lease_s

    def why_no_member(self) -> str:
        """Return why no partitions are placed here now; nothing if they are."""
        if self._is_draining:
            return "the server is stopping"
        return "" if self._is_answered else "the metadata server does not answer"

    @property
    def location(self) -> str:
        """The location at which clients reach this server."""
        return self._location

    @property
    def metadata_location(self) -> str:
        """The location at which this server reaches the metadata server."""
        return self._metadata.location

    @property
    def incarnation(self) -> str:
        """The id of this process among those at its location: see `mrflight.ids`.

        It changes when the server was declared lost, because it has then dropped its blocks.
        """
        return self._incarnation

    def drain(self) -> None:
        """Take no new partitions from now on; heartbeats continue."""
        self._is_draining = True
        try:
            with Connections(self._hasty) as connections:
                MetadataClient(self._metadata.location, connections).drain_server(self._location)
        except MrflightError as error:
            log.info("a heartbeat will report that this server is stopping: %s", error)

    def leave(self) -> None:
        """Leave the cluster; what is still held is lost."""
        self._stopping.set()
        self._heartbeat_thread.join()
        self._forgotten.put(None)
        try:
            self._heartbeats.unregister_server(self._location, self._incarnation)
        except MrflightError as error:
            log.info("this server stops without being unregistered: %s", error)
        self._connections.close()
        self._heart_connections.close()

    def open(self, shuffle_id: str, token: str = "") -> None:
        """Open a shuffle in the store; with a token, only the shuffle that has it.

        A shuffle of the same name that was dropped while this server could not be reached is
        removed from the store. Raises ShuffleNotFoundError if there is no such shuffle.
        """
        # Repeat if another thread was faster and opened a shuffle that has been dropped since.
        while (stored := self._store.token(shuffle_id)) is None or (
            token and not same_token(token, stored)
        ):
            with self._exclusive() as metadata:
                described = metadata.describe_shuffle(shuffle_id, token=token)
            if stored is not None:
                self._forget_but_for_files({shuffle_id: stored})
            self._store.open(shuffle_id, len(described.placement), described.token)

    def committed_attempts(
        self, shuffle_id: str, epoch: int, generation: int = 0
    ) -> list[MapAttempt]:
        """Return the attempts that count for partitions of a generation, of the first ``epoch``.

        Raises InconsistentMapOutputError if there are fewer commits. What other tasks have read
        may then not fit what will be written again.
        """
        with self._exclusive() as metadata:
            known = self._commits.get(shuffle_id, [])
            last, since = known[-1:], max(len(known) - 1, 0)
            news = metadata.commits(shuffle_id, since)
            if last and last != news[:1]:
                # Another shuffle of this name: this server never heard that the first was dropped.
                known, news, since = [], metadata.commits(shuffle_id, 0), 0
            known = known[:since] + news
            with self._commits_lock:
                if self._store.is_open(shuffle_id):  # it may have been dropped meanwhile
                    self._commits[shuffle_id] = known
        if len(known) < epoch:
            raise InconsistentMapOutputError(
                f"a ticket is of epoch {epoch}, and shuffle {shuffle_id!r} is at {len(known)}: its "
                "metadata server has forgotten committed maps"
            )
        return [commit.source for commit in known[:epoch] if commit.counts_for(generation)]

    def schema(self, shuffle_id: str, partition: int) -> pa.Schema:
        """Return the schema of a shuffle's rows, which is that of every partition."""
        with self._exclusive() as metadata:
            return metadata.partitions(shuffle_id, only=partition)[0]

    def forget(self, shuffle_id: str, token: str = "") -> None:
        """Drop a shuffle here; its files are gone when this returns."""
        for forgotten in self._forget({shuffle_id: token}):
            self._store.remove_files(forgotten)

    def _forget(self, tokens: Mapping[str, str]) -> list[StoredShuffle]:
        """Drop shuffles without their files, and return those that may have files.

        They are named with their tokens, so that a new shuffle of the same name stays.
        """
        found = []
        for shuffle_id, token in tokens.items():
            if (forgotten := self._store.forget(shuffle_id, token)) is not None:
                found.append(forgotten)
                with self._commits_lock:
                    self._commits.pop(shuffle_id, None)
        return found

    def _forget_but_for_files(self, tokens: Mapping[str, str]) -> None:
        """Drop shuffles, and leave files to a thread: a slow disk must not delay heartbeats."""
        for forgotten in self._forget(tokens):
            self._forgotten.put(forgotten)

    def _remove_files(self) -> None:
        while (forgotten := self._forgotten.get()) is not None:
            self._store.remove_files(forgotten)

    @contextmanager
    def _exclusive(self) -> Iterator[MetadataClient]:
        """Yield the metadata client to one request at a time.

        While one request retries, the others wait at the same time, and not one after the other.
        """
        if not self._metadata_lock.acquire(timeout=self._connections.timeouts.reconnect_s):
            error = ServerUnavailableError(
                f"{self._metadata.location} has not answered another request in time"
            )
            error.location = self._metadata.location
            raise error
        try:
            yield self._metadata
        finally:
            self._metadata_lock.release()

    def _send_heartbeats(self) -> None:
        while not self._stopping.wait(self._heartbeat_s):
            try:
                self._send_heartbeat()
            except MrflightError as error:
                level = logging.WARNING if self._is_answered else logging.DEBUG
                log.log(level, "%s; retrying, with no more messages until it answers", error)
                self._is_answered = False
            else:
                if not self._is_answered:
                    log.info("the metadata server at %s answers again", self.metadata_location)
                self._is_answered = True

    def _send_heartbeat(self) -> None:
        tokens, stats = self._store.tokens(), self._store.stats()
        held = Heartbeat(
            self._location,
            list(tokens),
            stats.size_bytes,
            self._incarnation,
            list(tokens.values()),
            StoreUse(
                stats.memory_bytes,
                stats.spilled_bytes + stats.dead_bytes,
                self._store.budget_bytes,
            ),
        )
        began_at = time.monotonic()
        answer = self._heartbeats.heartbeat(held)
        if answer.registered:
            self._renewed_at = began_at
        if not answer.registered and not self._stopping.is_set():
            # It was declared lost, and all its partitions have been placed elsewhere.
            self._incarnation = secrets.token_hex(8)
            self._forget_but_for_files(self._store.tokens())
            self._register(self._heartbeats, self._location)
            self._is_drain_reported = False
        if self._is_draining and not self._is_drain_reported:
            self._heartbeats.drain_server(self._location)
            self._is_drain_reported = True
        gone = tokens.keys() & answer.drop
        self._forget_but_for_files({shuffle_id: tokens[shuffle_id] for shuffle_id in gone})
