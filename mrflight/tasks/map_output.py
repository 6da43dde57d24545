"""Sends rows of a task to their partitions, as the output of one attempt of a map."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pyarrow as pa

from mrflight.errors import AttemptSupersededError
from mrflight.shuffle.client.writer import ShuffleWriter


class WriteLimits(msgspec.Struct, frozen=True):
    """The compression of the blocks that a map task sends, and the limits of its buffers."""

    compression: str
    writer_bytes: int
    """The bytes of rows that the shuffle writer holds."""
    combiner_bytes: int
    """The bytes of rows and groups that the combiner holds."""


def shuffle_batches(batches: Iterable[pa.RecordBatch], writer: ShuffleWriter) -> int:
    """Write all batches, commit the attempt, and return the number of rows.

    If the batches raise an exception, the attempt is not committed. If another attempt has been
    committed in the meantime, this returns normally, because the rows of both are the same.
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
