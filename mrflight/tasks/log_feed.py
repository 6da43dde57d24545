"""Feeds the tail of a live stream whose rows are mapped, and come from an event log."""

from __future__ import annotations

import time

import pyarrow as pa

from mrflight.compute.schemas import empty_batch
from mrflight.shuffle.client.log_client import LogClient, LogRows
from mrflight.shuffle.client.tail_client import TailClient
from mrflight.shuffle.wire.tail_protocol import OpenTail, TailPut, TailRange
from mrflight.sources.log_source import LogInput
from mrflight.sources.recorded_names import partition_of_log
from mrflight.tasks.tail_feed import TailFeed
from mrflight.tasks.tail_rows import mapped_rows

_LOOK_EVERY_S = 0.005
"""How often the owner of the log is asked for more rows while none come."""


def run_log_feed(feed: TailFeed) -> None:
    """Follow the log until something fails; the driver then begins another feed.

    Raises ProtocolError once another feed has taken over, and what reading and mapping raise.
    """
    access = feed.log
    assert access is not None, feed.input
    place = LogInput(access.location, access.client, feed.folder)
    with (
        TailClient(feed.server, feed.token) as client,
        LogClient(access.location, access.client) as log,
    ):
        placement = log.describe(place.key(feed.input, feed.spec))
        key, name = placement.key, partition_of_log(placement.log)
        request = OpenTail(
            feed.tail,
            feed.epoch,
            {feed.names[each]: start for each, start in feed.starts.items()},
            sorted(feed.recorded),
            {name: log.state(key).high},
        )
        feeder = _Feeder(feed, client, name)
        offset = client.open(request)[name]
        while True:
            before = offset
            for rows in log.read_durable(key, offset):
                offset = feeder.put(rows)
                if offset != rows.stop:  # the table has told the server another offset
                    break
            if offset == before:
                time.sleep(_LOOK_EVERY_S)
                offset = feeder.look(offset)


class _Feeder:
    def __init__(self, feed: TailFeed, client: TailClient, name: str) -> None:
        self._feed = feed
        self._client = client
        self._name = name
        self._target = TailPut(feed.tail, feed.epoch)
        self._schema = pa.schema([])
        self._looked_at = time.monotonic()

    def put(self, rows: LogRows) -> int:
        """Put rows, and return with which offset the server goes on."""
        columns = self._feed.spec.columns
        batch = rows.rows.select(columns) if columns else rows.rows
        mapped = mapped_rows(batch, f"log://{self._feed.input}", self._feed.row_map)
        if self._feed.changes is not None:
            mapped = self._feed.changes.mark(mapped)
        if mapped.num_columns:
            self._schema = mapped.schema
        else:
            mapped = empty_batch(self._schema)
        part = TailRange(self._name, rows.start, rows.stop)
        return self._client.put(self._target, self._schema, [(part, mapped)])[self._name]

    def look(self, offset: int) -> int:
        """Ask the server now and then with which offset it goes on."""
        if time.monotonic() - self._looked_at < 0.1:
            return offset
        self._looked_at = time.monotonic()
        return self._client.put(self._target, self._schema, [])[self._name]
