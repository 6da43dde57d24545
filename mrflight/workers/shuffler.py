"""Sends mapped batches to the partitions of their rows."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from mrflight.shuffle.writer import ShuffleWriter


def shuffle_batches(batches: Iterable[pa.RecordBatch], writer: ShuffleWriter) -> int:
    """Write all batches and commit the attempt; the number of rows that were sent.

    Whatever the batches raise ends the attempt uncommitted.
    """
    rows = 0
    with writer as out:
        for batch in batches:
            out.write(batch)
            rows += batch.num_rows
    return rows
