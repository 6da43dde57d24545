"""A shuffle as its users hold it: write maps, read partitions, drop it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from mrflight.errors import JobError, MrflightError
from mrflight.ids import check_attempt, new_writer_id
from mrflight.shuffle.calls import call
from mrflight.shuffle.connections import Connections
from mrflight.shuffle.metadata_client import MetadataClient
from mrflight.shuffle.partition_buffers import BUFFER_BYTES
from mrflight.shuffle.partitioners import HashPartitioner, Partitioner
from mrflight.shuffle.protocol import DataAction, Done, ShuffleName
from mrflight.shuffle.reader import read_partition
from mrflight.shuffle.registry import PartitionInfo
from mrflight.shuffle.writer import ShuffleWriter

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Shuffle:
    """A shuffle on a cluster, made by `Cluster.create_shuffle`.

    Pickles to a few hundred bytes and works in any process that reaches the
    servers: it holds names only and connects where it is used.
    """

    metadata: str
    """Location of the metadata server."""
    id: str
    partitions: int

    def writer(
        self,
        map_id: int,
        attempt: int = 0,
        key: Sequence[str] = (),
        *,
        partitioner: Partitioner | None = None,
        compression: str = "none",
        buffer_bytes: int = BUFFER_BYTES,
    ) -> ShuffleWriter:
        """A writer of one map attempt, to be used as a context manager.

        Rows go to the partition of their ``key`` columns' hash, or where
        ``partitioner`` puts them. ``compression`` is none, lz4 or zstd;
        ``buffer_bytes`` is what the writer holds at most of rows that are not sent yet.
        Raises ShuffleNotFoundError where the shuffle is not there, JobError without
        any of the two.
        """
        if partitioner is None and not key:
            raise JobError("Shuffle.writer: name the key columns, or give a partitioner")
        if isinstance(key, str):
            raise JobError(f"Shuffle.writer: key is a list of columns, [{key!r}]")
        source = check_attempt(map_id, attempt, new_writer_id())
        partitioner = partitioner or HashPartitioner(tuple(key), self.partitions)
        connections = Connections()
        metadata = MetadataClient(self.metadata, connections)
        described = metadata.describe_shuffle(self.id)
        placement = [[described.locations[i] for i in places] for places in described.placement]
        return ShuffleWriter(
            self.id,
            source,
            partitioner,
            placement,
            metadata,
            connections,
            compression,
            buffer_bytes,
        )

    def reader(self, partition: int) -> Iterator[pa.RecordBatch]:
        """The rows of a partition that committed maps wrote, in order of the map ids.

        Raises IncompletePartitionError where they are not all there.
        """
        with Connections() as connections:
            _, (info,) = MetadataClient(self.metadata, connections).partitions(self.id, partition)
            yield from read_partition(self.id, info, connections)

    def schema(self) -> pa.Schema:
        """Of the rows that were written; without columns before the first map is committed."""
        return self.layout()[0]

    def layout(self) -> tuple[pa.Schema, list[PartitionInfo]]:
        """The schema, and of each partition its locations, rows and bytes so far."""
        with Connections() as connections:
            return MetadataClient(self.metadata, connections).partitions(self.id)

    def drop(self) -> None:
        """Forget the shuffle on all servers.

        A data server that cannot be reached now forgets it at its next heartbeat.
        """
        with Connections() as connections:
            name = ShuffleName(self.id)
            for location in MetadataClient(self.metadata, connections).drop_shuffle(self.id):
                try:
                    call(connections, location, DataAction.DROP_SHUFFLE, name, Done)
                except MrflightError as error:
                    log.warning("%s drops shuffle %s later: %s", location, self.id, error)
