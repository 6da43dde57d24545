"""Sends mapped batches to the partitions of their rows."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from mrflight.errors import AttemptSupersededError
from mrflight.shuffle.client.writer import ShuffleWriter


def shuffle_batches(batches: Iterable[pa.RecordBatch], writer: ShuffleWriter) -> int:
    """Write all batches and commit the attempt; the number of rows that were sent.

    Whatever the batches raise ends the attempt uncommitted. Where another attempt was committed
    meanwhile, its rows are the same, and that is as good.
    """
    rows = 0
    is_complete = False
    try:
        with writer as out:
            for batch in batches:
                out.write(batch)
                rows += batch.num_rows
            is_complete = True
    except AttemptSupersededError:
        if not is_complete:
            raise
    return rows
