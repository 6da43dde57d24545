"""Sends rows of a task to their partitions, as the output of one attempt of a map."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from mrflight.errors import AttemptSupersededError
from mrflight.shuffle.client.shuffle import Shuffle
from mrflight.shuffle.client.writer import ShuffleWriter
from mrflight.tasks.bad_row_file import AttemptLog
from mrflight.tasks.map_task import MappedRows, MapResult, MapTask


def run_map(task: MapTask, attempt: int, shuffle: Shuffle, writer_id: str) -> MapResult:
    """Run one attempt of a map.

    When this returns, the rows of this attempt or of a speculative one are committed.
    """
    with AttemptLog(task.bad_rows, task.map_id, attempt, shuffle.id) as bad_rows:
        mapped = MappedRows(task, bad_rows)
        writer = shuffle.writer(
            task.map_id,
            attempt,
            partitioner=task.partitioner.partitioner(task.map_id),
            compression=task.limits.compression,
            buffer_bytes=task.limits.writer_bytes,
            writer_id=writer_id,
        )
        return mapped.result(shuffle_batches(mapped.batches(), writer))


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
