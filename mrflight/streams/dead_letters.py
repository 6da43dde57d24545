"""The Delta table of the events that could not be decoded, each of them once.

It records offsets of its own, so a batch that runs again, because its table was not committed,
adds none of its bad events twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import pyarrow as pa

from mrflight.config.output_section import OutputSection
from mrflight.sinks.commit.base import Commit
from mrflight.sinks.commit.stream_offsets import StreamOffsets
from mrflight.sinks.delta.sink import DeltaSink
from mrflight.sources.bad_rows import BadRow
from mrflight.sources.kafka.rejected_message import RejectedMessage
from mrflight.sources.kafka.topic_offsets import Partition
from mrflight.storage import Location
from mrflight.storage.part_name import PartId

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("reason", pa.string()),
        ("rejected_at", pa.timestamp("us", "UTC")),
    ]
)


class DeadLetters:
    """Appends rejected events to their table."""

    def __init__(self, table: Location, stream: str) -> None:
        self._table = table
        self._stream = stream
        self._sink: DeltaSink | None = None

    def commit(
        self,
        job_id: str,
        rows: Sequence[BadRow],
        ends: Mapping[str, int],
        names: Mapping[Partition, str],
    ) -> int:
        """Append the events that the table does not have yet, and return how many they are.

        ``ends`` are the next offsets once these are there, by the names that partitions have in
        tables, and ``names`` are those. Raises what `Sink.commit` raises.
        """
        sink = self._next_sink(job_id)
        recorded = sink.recorded_offsets(self._stream)
        rejected = [row for row in rows if isinstance(row, RejectedMessage)]
        new = [
            row
            for row in rejected
            if row.offset >= recorded.get(names[row.topic, row.partition], 0)
        ]
        if not new:
            return 0
        after = {name: end for name, end in ends.items() if end > recorded.get(name, -1)}
        before = {name: recorded[name] for name in after if name in recorded}
        table = pa.Table.from_pylist([_row(each) for each in new], SCHEMA)
        try:
            parts = sink.part_writer.write(PartId(0, 0), SCHEMA, table.to_batches())
            offsets = StreamOffsets(self._stream, before, after)
            sink.commit(Commit(tuple(parts), SCHEMA, offsets=offsets))
        except BaseException:
            sink.abort()
            self._sink = None
            raise
        return len(new)

    def _next_sink(self, job_id: str) -> DeltaSink:
        """Return the sink of the next commit; the table is opened again until it exists."""
        if self._sink is None or self._sink.recorded_offsets(self._stream) == {}:
            spec = OutputSection(table=self._table.url, mode="append")
            self._sink = DeltaSink(self._table, spec, job_id, None)
        else:
            self._sink = self._sink.following(job_id)
        return self._sink


def _row(rejected: RejectedMessage) -> dict[str, object]:
    return {
        "topic": rejected.topic,
        "partition": rejected.partition,
        "offset": rejected.offset,
        "timestamp": None if rejected.timestamp < 0 else rejected.timestamp * 1000,
        "key": rejected.key,
        "value": rejected.value,
        "reason": rejected.reason,
        "rejected_at": datetime.now(UTC),
    }
