"""Feeds the tail of a live stream: follows its topics, and puts what arrives to a data server.

It runs as one long task in a worker of the stream, beside those that write batches.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from mrflight.compute.schemas import empty_batch
from mrflight.config.identity import ClusterAccess, Endpoint
from mrflight.config.input_spec import InputSpec
from mrflight.config.stream_batch import StreamBatch
from mrflight.shuffle.client.tail_client import TailClient
from mrflight.shuffle.wire.tail_protocol import OpenTail, TailPut, TailRange
from mrflight.sources import open_source
from mrflight.sources.kafka.client_settings import DEFAULT_MEMORY_BYTES, client_settings
from mrflight.sources.kafka.kafka_reader import KafkaReader
from mrflight.sources.kafka.topic_follower import Followed, TopicFollower
from mrflight.sources.kafka.topic_offsets import KafkaCluster, Partition
from mrflight.tasks.mapper import RowMap
from mrflight.tasks.tail_changes import TailChanges
from mrflight.tasks.tail_rows import TailRows

_LOOK_EVERY_S = 0.1
"""How often the server is asked where to go on while no events arrive."""
_SPLIT_BYTES = 1 << 20
_NO_ROWS = pa.RecordBatch.from_pylist([], schema=pa.schema([]))


class TailFeed(msgspec.Struct, frozen=True):
    """What is followed, how its messages become rows, and where these go."""

    input: str
    spec: InputSpec
    folder: Path
    schema: pa.Schema | None
    """The columns of the messages, if a batch of the stream has found them out."""
    row_map: RowMap | None
    starts: Mapping[Partition, int]
    """Where each partition begins that the tail does not have yet."""
    recorded: frozenset[str]
    """The names of those of which the table has recorded an offset."""
    names: Mapping[Partition, str]
    server: Endpoint
    tail: str
    token: str
    epoch: int
    log: ClusterAccess | None = None
    """The cluster that has the event log; None for topics of Kafka."""
    changes: TailChanges | None = None
    """Set if the rows are changes, which the stream merges into its table."""


def run_feed(feed: TailFeed) -> None:
    """Follow the topics until something fails; the driver then begins another feed.

    Raises ProtocolError once another feed has taken over, and what reading and decoding raise.
    """
    settings = client_settings(feed.input, feed.spec)
    with (
        TailClient(feed.server, feed.token) as client,
        TopicFollower(settings, with_headers=feed.spec.metadata) as follower,
    ):
        ends = {
            partition: each.latest
            for partition, each in KafkaCluster(settings).offsets(feed.starts).items()
        }
        request = OpenTail(
            feed.tail,
            feed.epoch,
            {feed.names[each]: start for each, start in feed.starts.items()},
            sorted(feed.recorded),
            {feed.names[each]: end for each, end in ends.items()},
        )
        _Feeder(feed, client, follower).run(client.open(request))


class _Feeder:
    def __init__(self, feed: TailFeed, client: TailClient, follower: TopicFollower) -> None:
        self._feed = feed
        self._client = client
        self._follower = follower
        self._target = TailPut(feed.tail, feed.epoch)
        self._rows: TailRows | None = None
        self._schema = _NO_ROWS.schema
        self._positions: dict[Partition, int] = {}

    def run(self, positions: Mapping[str, int]) -> None:
        self._go_on(positions)
        asked_at = time.monotonic()
        while True:
            found = self._follower.poll(_LOOK_EVERY_S)
            if not found and time.monotonic() - asked_at < _LOOK_EVERY_S:
                continue
            self._go_on(self._put(found))
            asked_at = time.monotonic()

    def _put(self, found: list[Followed]) -> dict[str, int]:
        """Put what was found, and return with which offsets the server goes on."""
        parts = [(self._range(each), self._batch(each)) for each in found]
        filled = [batch for _, batch in parts if batch.num_columns]
        schema = filled[0].schema if filled else self._schema
        self._schema = schema
        empty = empty_batch(schema)
        fitting = [(part, batch if batch.num_columns else empty) for part, batch in parts]
        return self._client.put(self._target, schema, fitting)

    def _range(self, found: Followed) -> TailRange:
        self._positions[found.partition] = found.stop
        return TailRange(self._feed.names[found.partition], found.start, found.stop)

    def _batch(self, found: Followed) -> pa.RecordBatch:
        if found.messages is None:
            return _NO_ROWS
        if self._rows is None:
            self._rows = self._open(found)
        return self._rows.of(found.messages)

    def _open(self, found: Followed) -> TailRows:
        """Return how messages become rows; without a schema, those that were found decide."""
        feed = self._feed
        ranges = {found.partition: (found.start, found.stop)}
        batch = StreamBatch(ranges, feed.schema, 1, DEFAULT_MEMORY_BYTES)
        spec = replace(feed.spec, batch=batch)
        source = open_source(feed.input, spec, feed.folder, {}, _SPLIT_BYTES)
        assert isinstance(source.reader, KafkaReader)
        return TailRows(source.reader, feed.row_map, feed.changes)

    def _go_on(self, positions: Mapping[str, int]) -> None:
        """Go on where the server does, which may have been told other offsets by the table."""
        wanted = {each: positions[name] for each, name in self._feed.names.items()}
        if wanted != self._positions:
            self._positions = wanted
            self._follower.assign(wanted)
