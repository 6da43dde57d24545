"""A handle of a shuffle: write maps, read partitions, drop it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec
import pyarrow as pa

from mrflight.compute.layout import decode_dictionaries
from mrflight.config.identity import ClientOptions
from mrflight.errors import (
    CorruptBlockError,
    DeadlineExceededError,
    IncompletePartitionError,
    JobError,
    MapOutputMissingError,
    MrflightError,
    ServerUnavailableError,
    SpillError,
)
from mrflight.ids import MapAttempt, ShuffleKey, check_attempt, new_writer_id
from mrflight.shuffle.client.metadata_client import MetadataClient
from mrflight.shuffle.client.partition_buffers import BUFFER_BYTES
from mrflight.shuffle.client.partitioners import HashPartitioner, Partitioner
from mrflight.shuffle.client.reader import read_partition
from mrflight.shuffle.client.writer import MapTarget, ShuffleWriter
from mrflight.shuffle.wire.calls import notify
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.partition_info import PartitionInfo
from mrflight.shuffle.wire.protocol import (
    DataAction,
    DiscardAttempt,
    Message,
    ShuffleHealth,
    ShuffleName,
)
from mrflight.system.deadlines import Timeouts
from mrflight.system.shared_payload import SharedPayload

log = logging.getLogger(__name__)


class LostOutput(NamedTuple):
    """Lost map output: all that a location holds of a shuffle, or some partitions there."""

    location: str
    partitions: list[int] | None = None
    insists: bool = False
    """True if the output is lost even though the server is alive."""
    is_silent: bool = False
    """True if the server does not answer some user of the shuffle, whoever else it answers."""


def classify_failure(error: Exception) -> LostOutput | None:
    """Return the map output that is lost according to ``error``; None if it names none."""
    match error:
        case CorruptBlockError() | IncompletePartitionError():
            if error.location is None or error.partition is None:
                return None
            return LostOutput(error.location, [error.partition])
        case ServerUnavailableError() | DeadlineExceededError() | SpillError():
            if error.location is None:
                return None
            is_silent = isinstance(error, ServerUnavailableError) and error.is_silent
            return LostOutput(error.location, None, isinstance(error, SpillError), is_silent)
    return None


class Shuffle(SharedPayload, msgspec.Struct, frozen=True):
    """A shuffle on a cluster; made by `Cluster.create_shuffle`.

    It pickles to a few hundred bytes and works in any process that can reach the servers: it has
    names only, and connects where it is used.
    """

    metadata: str
    """The location of the metadata server."""
    id: str
    partitions: int
    token: str = ""
    """The shuffle's id among shuffles of the same name, and the secret without which a secured
    cluster gives and takes no rows: see `mrflight.ids`."""
    client: ClientOptions = ClientOptions()
    """How its users talk to its servers: see `connect`."""

    @property
    def key(self) -> ShuffleKey:
        """Its id and token."""
        return ShuffleKey(self.id, self.token)

    def connections(self) -> Connections:
        """Return new connections to its servers, to be used as a context manager."""
        return Connections(self.client)

    def with_timeouts(self, timeouts: Timeouts) -> Shuffle:
        """Return a handle of the same shuffle with other timeouts."""
        return msgspec.structs.replace(self, client=self.client.with_timeouts(timeouts))

    def writer(
        self,
        map_id: int,
        attempt: int = 0,
        key: Sequence[str] = (),
        *,
        partitioner: Partitioner | None = None,
        compression: str = "none",
        buffer_bytes: int = BUFFER_BYTES,
        writer_id: str | None = None,
    ) -> ShuffleWriter:
        """Return a writer of one map attempt, to be used as a context manager.

        A row goes to the partition of its ``key`` columns' hash, or where ``partitioner`` puts it.
        ``compression`` is none, lz4 or zstd. ``buffer_bytes`` limits the rows that are not sent
        yet. ``writer_id`` is random by default; a caller that makes sure that each attempt has one
        writer, and may have to call `drop_stale_attempts`, passes its own.
        Raises ShuffleNotFoundError if there is no such shuffle, and JobError without a key and a
        partitioner.
        """
        if partitioner is None and not key:
            raise JobError("Shuffle.writer: name the key columns, or give a partitioner")
        if isinstance(key, str):
            raise JobError(f"Shuffle.writer: key must be a list of columns, [{key!r}]")
        source = check_attempt(map_id, attempt, writer_id or new_writer_id())
        partitioner = partitioner or HashPartitioner(tuple(key), self.partitions)
        connections = self.connections()
        metadata = self._metadata(connections)
        target = metadata.describe_shuffle(self.id, map_id, self.token)
        return ShuffleWriter(
            MapTarget(source, target),
            partitioner,
            metadata,
            connections,
            compression,
            buffer_bytes,
        )

    def reader(self, partition: int, *, maps: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition that committed maps wrote, in order of the map ids.

        Rows of maps that are committed later are left out. With the number of ``maps`` that the
        shuffle will have, raises MapOutputMissingError while fewer are committed; by default,
        raises it while none is, because the shuffle is then read too early. 0 reads what is there.
        Raises IncompletePartitionError if rows are missing.
        """
        with self.connections() as connections:
            _, (info,) = self._layout(self._metadata(connections), maps, partition)
            yield from map(decode_dictionaries, read_partition(self.key, info, connections))

    def schema(self) -> pa.Schema:
        """Return the schema of the rows; it has no columns before the first map is committed."""
        return self.layout()[0]

    def layout(self, *, maps: int | None = 0) -> tuple[pa.Schema, list[PartitionInfo]]:
        """Return the schema, and the locations, rows and bytes of each partition so far.

        ``maps`` is as in `reader`.
        """
        with self._connected() as metadata:
            return self._layout(metadata, maps)

    def health(self) -> ShuffleHealth:
        """Return the placement's version, and the maps that must be written again.

        Renews the lease if the shuffle has one.
        """
        with self._connected() as metadata:
            return metadata.health(self.id, self.token)

    def committed_maps(self) -> list[int]:
        """Return the sorted ids of the committed maps."""
        with self._connected() as metadata:
            return sorted(self._committed_maps(metadata))

    def placement(self) -> list[tuple[str, ...]]:
        """Return the locations of each partition.

        Raises NoDataServersError if a partition is lost and there is no server for it.
        """
        with self._connected() as metadata:
            return metadata.describe_shuffle(self.id, token=self.token).places

    def report_loss(
        self, location: str, partitions: list[int] | None = None, *, insists: bool = False
    ) -> bool:
        """Report that what a location holds of this shuffle, or of some partitions, is unusable.

        Returns whether the placement no longer has that location. The metadata server checks that
        the location is unreachable, unless ``insists`` is set or partitions are named. Maps whose
        rows are lost must then be written again: see `health`.
        """
        with self._connected() as metadata:
            return metadata.report_loss(
                self.id, location, partitions, insists=insists, token=self.token
            )

    def report(self, error: Exception) -> bool:
        """Report an error of a writer or a reader as `report_loss` does.

        Returns False if the error does not name anything that could be lost.
        """
        lost = classify_failure(error)
        if lost is None or lost.location == self.metadata:
            return False
        if self.report_loss(lost.location, lost.partitions, insists=lost.insists):
            return True
        return lost.is_silent and self.report_silence(lost.location)

    def report_silence(self, location: str) -> bool:
        """Report a server that the metadata server reaches and some user of the shuffle does not.

        Returns whether it is lost for this shuffle. It stays if no other server has partitions of
        the shuffle: that user may be cut off from any server that would take its place.
        """
        if {at for places in self.placement() for at in places} <= {location}:
            return False
        return self.report_loss(location, insists=True)

    def drop_stale_attempts(self, map_id: int, attempts: int, writer_id: str) -> None:
        """Have the data servers discard attempts of a committed map that were not committed.

        These are the first ``attempts`` attempts by one writer, none of which runs any more. What
        an unreachable server keeps is never read, so it costs memory only.
        """
        kept = "blocks of stale attempts of shuffle %s are kept: %s"
        try:
            stale, locations = self._stale_attempts(map_id, attempts, writer_id)
        except MrflightError as error:
            log.warning(kept, self.id, error)
            return
        for attempt in stale:
            request = DiscardAttempt(self.id, *attempt, self.token)
            failed = self._notify(locations, DataAction.DISCARD_ATTEMPT, request)
            for failure in failed.values():
                log.warning(kept, self.id, failure)
            locations = [location for location in locations if location not in failed]

    def _stale_attempts(
        self, map_id: int, attempts: int, writer_id: str
    ) -> tuple[list[MapAttempt], list[str]]:
        """Return the first ``attempts`` attempts without committed ones, and the data servers."""
        with self._connected() as metadata:
            commits = [commit.source for commit in metadata.commits(self.id, 0, self.token)]
            committed = {source for source in commits if source.map_id == map_id}
            tried = (MapAttempt(map_id, number, writer_id) for number in range(attempts))
            # Whichever result the driver saw first, readers read the committed attempts.
            stale = [attempt for attempt in tried if committed and attempt not in committed]
            if not stale:
                return [], []
            return stale, metadata.describe_shuffle(self.id, token=self.token).locations

    def drop(self) -> None:
        """Drop the shuffle on all servers.

        A data server that cannot be reached now drops it at its next heartbeat.
        """
        with self._connected() as metadata:
            locations = metadata.drop_shuffle(self.id, self.token)
        request = ShuffleName(self.id, self.token)
        failed = self._notify(locations, DataAction.DROP_SHUFFLE, request)
        for location, error in failed.items():
            log.warning("%s drops shuffle %s later: %s", location, self.id, error)

    def _notify(
        self, locations: Sequence[str], action: DataAction, request: Message
    ) -> dict[str, MrflightError]:
        return notify(locations, action, request, self.client.identity)

    def _layout(
        self, metadata: MetadataClient, maps: int | None, only: int | None = None
    ) -> tuple[pa.Schema, list[PartitionInfo]]:
        # Count first, so that maps that are committed in between are in the layout.
        if maps and (found := len(self._committed_maps(metadata))) < maps:
            raise MapOutputMissingError(
                f"shuffle {self.id!r}: {found} of {maps} maps are committed, and the rows of the "
                "others would be missing; read it once all are"
            )
        schema, infos = metadata.partitions(self.id, only, self.token)
        if maps is None and infos[0].epoch == 0:
            raise MapOutputMissingError(
                f"shuffle {self.id!r}: no map is committed, so that it has no rows yet; read it "
                "once all are, or take what there is with maps=0"
            )
        return schema, infos

    def _committed_maps(self, metadata: MetadataClient) -> set[int]:
        return {commit.source.map_id for commit in metadata.commits(self.id, 0, self.token)}

    @contextmanager
    def _connected(self) -> Iterator[MetadataClient]:
        """Return a client of the metadata server, whose connections are closed at the end."""
        with self.connections() as connections:
            yield self._metadata(connections)

    def _metadata(self, connections: Connections) -> MetadataClient:
        return MetadataClient(self.metadata, connections, self.client.timeouts.reconnect_s)
