"""A shuffle as its users hold it: write maps, read partitions, drop it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa

from mrflight.compute.layout import decode_dictionaries
from mrflight.errors import JobError, MapOutputMissingError, MrflightError
from mrflight.ids import MapAttempt, check_attempt, new_writer_id
from mrflight.shuffle.client.fetch_failures import classify_failure
from mrflight.shuffle.client.metadata_client import MetadataClient
from mrflight.shuffle.client.partition_buffers import BUFFER_BYTES
from mrflight.shuffle.client.partitioners import HashPartitioner, Partitioner
from mrflight.shuffle.client.reader import read_partition
from mrflight.shuffle.client.writer import MapTarget, ShuffleWriter
from mrflight.shuffle.wire.calls import notify
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.partition_info import PartitionInfo
from mrflight.shuffle.wire.protocol import DataAction, DiscardAttempt, ShuffleHealth, ShuffleName
from mrflight.system.deadlines import DEFAULT_TIMEOUTS, Timeouts
from mrflight.system.in_common import InCommon

log = logging.getLogger(__name__)


class Shuffle(InCommon, msgspec.Struct, frozen=True):
    """A shuffle on a cluster, made by `Cluster.create_shuffle`.

    Pickles to a few hundred bytes and works in any process that reaches the
    servers: it holds names only and connects where it is used.
    """

    metadata: str
    """Location of the metadata server."""
    id: str
    partitions: int
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    token: str = ""
    """What tells it from another shuffle that is given its name once it is dropped."""

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
        """A writer of one map attempt, to be used as a context manager.

        Rows go to the partition of their ``key`` columns' hash, or where
        ``partitioner`` puts them. ``compression`` is none, lz4 or zstd;
        ``buffer_bytes`` is what the writer holds at most of rows that are not sent yet;
        ``writer_id`` is for who makes sure that no two writers write one attempt, and may have
        to `drop_stale_attempts`: no other writer has the one that is made up otherwise.
        Raises ShuffleNotFoundError where the shuffle is not there, JobError without
        any of the two.
        """
        if partitioner is None and not key:
            raise JobError("Shuffle.writer: name the key columns, or give a partitioner")
        if isinstance(key, str):
            raise JobError(f"Shuffle.writer: key is a list of columns, [{key!r}]")
        source = check_attempt(map_id, attempt, writer_id or new_writer_id())
        partitioner = partitioner or HashPartitioner(tuple(key), self.partitions)
        connections = Connections(self.timeouts)
        metadata = self._metadata(connections)
        target = metadata.describe_shuffle(self.id, map_id, self.token)
        return ShuffleWriter(
            MapTarget(self.id, source, target),
            partitioner,
            metadata,
            connections,
            compression,
            buffer_bytes,
        )

    def reader(self, partition: int, *, maps: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a partition that committed maps wrote, in order of the map ids.

        Maps that are committed later have no rows here. Nobody knows how many there will be but
        who writes them: tell ``maps``, and MapOutputMissingError is raised as long as fewer are
        committed; without it where none is, as a shuffle without any is read too early. 0 takes
        what is there. Raises IncompletePartitionError where the rows are not all there.
        """
        with Connections(self.timeouts) as connections:
            _, (info,) = self._layout(connections, maps, partition)
            yield from map(decode_dictionaries, read_partition(self.id, info, connections))

    def schema(self) -> pa.Schema:
        """Of the rows that were written; without columns before the first map is committed."""
        return self.layout()[0]

    def layout(self, *, maps: int | None = 0) -> tuple[pa.Schema, list[PartitionInfo]]:
        """The schema, and of each partition its locations, rows and bytes so far.

        ``maps`` is as in `reader`.
        """
        with Connections(self.timeouts) as connections:
            return self._layout(connections, maps)

    def health(self) -> ShuffleHealth:
        """How often the placement has changed, and which maps have to be written again.

        Renews the lease, where the shuffle was made with one.
        """
        with Connections(self.timeouts) as connections:
            return self._metadata(connections).health(self.id, self.token)

    def committed_maps(self) -> list[int]:
        """The numbers of the maps that are committed, in their order."""
        with Connections(self.timeouts) as connections:
            return sorted(self._committed(connections))

    def placement(self) -> list[tuple[str, ...]]:
        """The locations of each partition.

        NoDataServersError where one is lost and there is no server for it.
        """
        with Connections(self.timeouts) as connections:
            metadata = self._metadata(connections)
            described = metadata.describe_shuffle(self.id, token=self.token)
        return [tuple(described.locations[i] for i in places) for places in described.placement]

    def report_loss(
        self, location: str, partitions: list[int] | None = None, *, insists: bool = False
    ) -> bool:
        """Say that what a location holds cannot be used; whether the shuffle goes without it now.

        Of all its partitions there, or of some. The metadata server looks for itself, unless one
        ``insists``. Maps that are lost by it are then to be written again: see `health`.
        """
        with Connections(self.timeouts) as connections:
            metadata = self._metadata(connections)
            return metadata.report_loss(
                self.id, location, partitions, insists=insists, token=self.token
            )

    def report(self, error: Exception) -> bool:
        """Say what a writer or a reader has raised; whether the shuffle goes without something now.

        As `report_loss`, of what the error is about. False where it is about nothing that could be
        lost.
        """
        lost = classify_failure(error)
        if lost is None or lost.location == self.metadata:
            return False
        return self.report_loss(lost.location, lost.partitions, insists=lost.insists)

    def drop_stale_attempts(self, map_id: int, attempts: int, writer_id: str) -> None:
        """Let the data servers forget what attempts of a committed map put that did not win.

        Those are the first so many, by one writer, none of which runs any more. What a server
        that cannot be reached keeps is never read, so that it costs memory only.
        """
        kept = "blocks of lost attempts of shuffle %s are kept: %s"
        try:
            losers, locations = self._losers(map_id, attempts, writer_id)
        except MrflightError as error:
            log.warning(kept, self.id, error)
            return
        for loser in losers:
            request = DiscardAttempt(self.id, *loser)
            failed = notify(locations, DataAction.DISCARD_ATTEMPT, request)
            for failure in failed.values():
                log.warning(kept, self.id, failure)
            locations = [location for location in locations if location not in failed]

    def _losers(
        self, map_id: int, attempts: int, writer_id: str
    ) -> tuple[list[MapAttempt], list[str]]:
        """Those of the first so many attempts of a map whose blocks nobody reads, and where."""
        with Connections(self.timeouts) as connections:
            metadata = self._metadata(connections)
            commits = [c.source for c in metadata.commits(self.id, 0) if c.source.map_id == map_id]
            tried = (MapAttempt(map_id, number, writer_id) for number in range(attempts))
            # Whoever answered first, the blocks of one that is committed are read.
            losers = [attempt for attempt in tried if commits and attempt not in commits]
            locations = metadata.describe_shuffle(self.id).locations if losers else []
        return losers, locations

    def drop(self) -> None:
        """Forget the shuffle on all servers.

        A data server that cannot be reached now forgets it at its next heartbeat.
        """
        with Connections(self.timeouts) as connections:
            locations = self._metadata(connections).drop_shuffle(self.id, self.token)
        failed = notify(locations, DataAction.DROP_SHUFFLE, ShuffleName(self.id, self.token))
        for location, error in failed.items():
            log.warning("%s drops shuffle %s later: %s", location, self.id, error)

    def _layout(
        self, connections: Connections, maps: int | None, only: int | None = None
    ) -> tuple[pa.Schema, list[PartitionInfo]]:
        # Counted first: what is committed between the two is then in the layout.
        if maps and (found := len(self._committed(connections))) < maps:
            raise MapOutputMissingError(
                f"shuffle {self.id!r}: {found} of {maps} maps are committed, and the rows of the "
                "others would be missing; read it once all are"
            )
        schema, infos = self._metadata(connections).partitions(self.id, only)
        if maps is None and infos[0].epoch == 0:
            raise MapOutputMissingError(
                f"shuffle {self.id!r}: no map is committed, so that it has no rows yet; read it "
                "once all are, or take what there is with maps=0"
            )
        return schema, infos

    def _committed(self, connections: Connections) -> set[int]:
        commits = self._metadata(connections).commits(self.id, 0)
        return {commit.source.map_id for commit in commits}

    def _metadata(self, connections: Connections) -> MetadataClient:
        return MetadataClient(self.metadata, connections, self.timeouts.reconnect_s)
