"""A data server's place in its cluster: registered, alive, and told what goes on.

A data server asks the metadata server two things: whether a shuffle is there,
once, before its first block, and which attempts have won since it last asked.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from queue import SimpleQueue

import pyarrow as pa

from mrflight.errors import InconsistentMapOutputError, MrflightError, ServerUnavailableError
from mrflight.ids import MapAttempt
from mrflight.shuffle.client.metadata_client import MetadataClient
from mrflight.shuffle.store.block_store import BlockStore
from mrflight.shuffle.store.stored_shuffle import StoredShuffle
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.partition_info import MapCommit
from mrflight.shuffle.wire.protocol import Heartbeat
from mrflight.system.deadlines import DEFAULT_TIMEOUTS, Timeouts

log = logging.getLogger(__name__)

HEARTBEAT_S = 0.5
HEARTBEAT_TIMEOUT_S = 2.0
"""Of a call: the next one is made over a new connection, which a network that is back takes."""


class Membership:
    """Speaks to the metadata server for one data server. Safe for many threads.

    Its heart waits for no request, and for no disk.
    """

    def __init__(
        self, store: BlockStore, metadata: str, timeouts: Timeouts = DEFAULT_TIMEOUTS
    ) -> None:
        self._store = store
        self._stopping = threading.Event()
        self._is_draining = False
        self._drain_is_told = False  # by the heart
        self._connections = Connections(timeouts)
        retry_for_s = timeouts.reconnect_s
        self._metadata = MetadataClient(metadata, self._connections, retry_for_s, self._stopping)
        self._heart_connections = Connections(Timeouts(call_s=HEARTBEAT_TIMEOUT_S))
        self._heartbeats = MetadataClient(metadata, self._heart_connections)
        self._location = ""
        self._incarnation = secrets.token_hex(8)
        self._asking = threading.Lock()  # of the connections that requests use, one at a time
        self._knowing = threading.Lock()  # of `_commits`; nobody is asked while it is held
        self._commits: dict[str, list[MapCommit]] = {}
        self._heart = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._forgotten: SimpleQueue[StoredShuffle | None] = SimpleQueue()
        self._removal = threading.Thread(target=self._remove_files, name="removal", daemon=True)

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
        self._removal.start()
        self._heart.start()

    @property
    def location(self) -> str:
        """Where clients reach this server."""
        return self._location

    @property
    def metadata_location(self) -> str:
        """Where this server reaches the metadata server."""
        return self._metadata.location

    @property
    def incarnation(self) -> str:
        """What tells this process from others at its location.

        And from itself before it was given up: it has dropped then what it had.
        """
        return self._incarnation

    def drain(self) -> None:
        """Take no new partitions from now on. Heartbeats go on."""
        self._is_draining = True
        try:
            with Connections(Timeouts(call_s=HEARTBEAT_TIMEOUT_S)) as connections:
                MetadataClient(self._metadata.location, connections).drain_server(self._location)
        except MrflightError as error:
            log.info("the metadata server is told later that this one stops: %s", error)

    def leave(self) -> None:
        """Be no data server any more: what is still held is lost."""
        self._stopping.set()
        self._heart.join()
        self._forgotten.put(None)
        try:
            self._heartbeats.unregister_server(self._location, self._incarnation)
        except MrflightError as error:
            log.info("left without telling the metadata server: %s", error)
        self._connections.close()
        self._heart_connections.close()

    def open(self, shuffle_id: str, token: str = "") -> None:
        """Open a shuffle in the store; with a token no other one of its name.

        One that was dropped while nobody could tell this server makes way for it.
        ShuffleNotFoundError where there is none.
        """
        # Again where another thread was faster, with what it had heard of before a drop.
        while (stored := self._store.token(shuffle_id)) is None or token not in ("", stored):
            with self._turn() as metadata:
                described = metadata.describe_shuffle(shuffle_id, token=token)
            if stored is not None:
                self._forget_but_for_files({shuffle_id: stored})
            self._store.open(shuffle_id, len(described.placement), described.token)

    def winners(self, shuffle_id: str, epoch: int, generation: int = 0) -> list[MapAttempt]:
        """The attempts that count for partitions of a generation, of the first ``epoch``.

        InconsistentMapOutputError where there are fewer: what others have read may not go together
        with what will be written in their place.
        """
        with self._turn() as metadata:
            known = self._commits.get(shuffle_id, [])
            last, since = known[-1:], max(len(known) - 1, 0)
            news = metadata.commits(shuffle_id, since)
            if last and last != news[:1]:
                # Another shuffle of this name: this server was not told that the first was dropped.
                known, news, since = [], metadata.commits(shuffle_id, 0), 0
            known = known[:since] + news
            with self._knowing:
                if self._store.is_open(shuffle_id):  # not where it was forgotten meanwhile
                    self._commits[shuffle_id] = known
        if len(known) < epoch:
            raise InconsistentMapOutputError(
                f"a ticket of epoch {epoch}, and shuffle {shuffle_id!r} is at {len(known)}: its "
                "metadata server has forgotten maps that were done"
            )
        return [commit.source for commit in known[:epoch] if commit.counts_for(generation)]

    def schema(self, shuffle_id: str, partition: int) -> pa.Schema:
        """Of the rows of a shuffle, which are those of every partition."""
        with self._turn() as metadata:
            return metadata.partitions(shuffle_id, only=partition)[0]

    def forget(self, shuffle_id: str, token: str = "") -> None:
        """A shuffle is no more; its files are gone when this returns."""
        for forgotten in self._forget({shuffle_id: token}):
            self._store.remove_files(forgotten)

    def _forget(self, tokens: Mapping[str, str]) -> list[StoredShuffle]:
        """Know nothing of shuffles any more, at once; what they may have files of.

        They are named with their tokens: one that was made meanwhile and has their name stays.
        """
        found = []
        for shuffle_id, token in tokens.items():
            if (forgotten := self._store.forget(shuffle_id, token)) is not None:
                found.append(forgotten)
                with self._knowing:
                    self._commits.pop(shuffle_id, None)
        return found

    def _forget_but_for_files(self, tokens: Mapping[str, str]) -> None:
        """As `forget`, for the heart: removing files takes seconds, longer where the disk hangs."""
        for forgotten in self._forget(tokens):
            self._forgotten.put(forgotten)

    def _remove_files(self) -> None:
        while (forgotten := self._forgotten.get()) is not None:
            self._store.remove_files(forgotten)

    @contextmanager
    def _turn(self) -> Iterator[MetadataClient]:
        """Whom a request may ask, one at a time.

        Where the one before has to be patient, all who wait are so at the same time, and not one
        after the other.
        """
        if not self._asking.acquire(timeout=self._connections.timeouts.reconnect_s):
            error = ServerUnavailableError(
                f"{self._metadata.location} has not answered another request in time"
            )
            error.location = self._metadata.location
            raise error
        try:
            yield self._metadata
        finally:
            self._asking.release()

    def _beat(self) -> None:
        is_heard = True
        while not self._stopping.wait(HEARTBEAT_S):
            try:
                self._send_heartbeat()
            except MrflightError as error:
                level = logging.WARNING if is_heard else logging.DEBUG
                log.log(level, "%s; it is asked again, and nothing said until it answers", error)
                is_heard = False
            else:
                if not is_heard:
                    log.info("the metadata server at %s answers again", self.metadata_location)
                is_heard = True

    def _send_heartbeat(self) -> None:
        tokens = self._store.tokens()
        held = Heartbeat(
            self._location,
            list(tokens),
            self._store.stats().size_bytes,
            self._incarnation,
            list(tokens.values()),
        )
        answer = self._heartbeats.heartbeat(held)
        if not answer.registered and not self._stopping.is_set():
            # It was given up: all of it has been placed elsewhere, what came meanwhile as well.
            self._incarnation = secrets.token_hex(8)
            self._forget_but_for_files(self._store.tokens())
            self._heartbeats.register_server(self._location, self._incarnation)
            self._drain_is_told = False
        if self._is_draining and not self._drain_is_told:
            self._heartbeats.drain_server(self._location)
            self._drain_is_told = True
        gone = tokens.keys() & answer.drop
        self._forget_but_for_files({shuffle_id: tokens[shuffle_id] for shuffle_id in gone})
