"""Reads dead letters as the events that they were."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from mrflight.compute import arrow_compute as pc
from mrflight.config.input_spec import InputSpec
from mrflight.sources import open_source
from mrflight.sources.kafka.messages import Messages
from mrflight.storage import Location

_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value")
_SPLIT_BYTES = 16 << 20


def read_rejected(table: Location, version: int, storage: Mapping[str, str]) -> Iterator[Messages]:
    """Yield the events in a version of a table of dead letters, partition by partition of a batch.

    Their headers are not known any more.
    """
    spec = InputSpec(path=table.url, format="delta", columns=list(_COLUMNS), version=version)
    source = open_source("dead_letter", spec, Path("/"), storage, _SPLIT_BYTES)
    for split in source.splits:
        for batch in source.reader.read(split):
            yield from _by_partition(batch)


def _by_partition(batch: pa.RecordBatch) -> Iterator[Messages]:
    rows = pa.Table.from_batches([batch]).sort_by(
        [(name, "ascending") for name in ("topic", "partition", "offset")]
    )
    (rows,) = rows.combine_chunks().to_batches() or (batch,)
    topics, numbers = rows.column("topic"), rows.column("partition").to_numpy()
    codes = topics.dictionary_encode().indices.to_numpy()
    is_first = np.ones(len(codes), bool)
    is_first[1:] = (codes[1:] != codes[:-1]) | (numbers[1:] != numbers[:-1])
    starts = np.flatnonzero(is_first)
    for start, stop in zip(starts, [*starts[1:], len(codes)], strict=True):
        yield _messages(rows.slice(int(start), int(stop - start)))


def _messages(rows: pa.RecordBatch) -> Messages:
    """Return rows of one partition."""
    micros = rows.column("timestamp").cast(pa.timestamp("us", "UTC")).view(pa.int64())
    millis = pc.fill_null(pc.divide(micros, 1000), -1)
    return Messages(
        rows.column("topic")[0].as_py(),
        rows.column("partition")[0].as_py(),
        rows.column("offset"),
        millis,
        rows.column("key").cast(pa.binary()),
        rows.column("value").cast(pa.binary()),
    )
