"""A sample of the keys of streamed rows, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import pyarrow as pa

from mrflight.tasks.operators.spill_partitions import RowBuffer

MIN_KEYS = 512
"""The number of keys that are kept, however large they are."""


class KeySample:
    """Samples a key about every ``step_bytes`` of rows.

    If the keys take more than ``max_bytes``, every other one is dropped. The distances are random,
    because rows often come in cycles (every day of every shop), of which even steps would see only
    a part. The same rows result in the same sample.
    """

    def __init__(self, names: Sequence[str], step_bytes: int, max_bytes: int) -> None:
        self._names = list(names)
        self._step_bytes = step_bytes
        self._max_bytes = max_bytes
        self._random = Random(0)
        self._next = 0
        """The next row to take, counted from the start of the next batch."""
        self._keys = RowBuffer()

    def observe(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches, and sample their rows, the first row included."""
        for batch in batches:
            self._take(batch)
            yield batch

    def keys(self) -> pa.Table:
        """Return the columns ``names`` of the rows taken so far, in their order."""
        keys = self._keys.pop()
        self._keys.append(keys)
        return keys

    def _take(self, batch: pa.RecordBatch) -> None:
        step = max(1, self._step_bytes * batch.num_rows // max(1, batch.nbytes))
        row = min(self._next, 2 * step)  # the last step may be for smaller rows
        rows = []
        while row < batch.num_rows:
            rows.append(row)
            row += self._random.randint(1, 2 * step - 1)
        self._next = row - batch.num_rows
        if rows:
            keys = batch.select(self._names).take(pa.array(rows))
            self._keys.append(pa.Table.from_batches([keys]))
        while self._keys.bytes > self._max_bytes and self._keys.rows >= 2 * MIN_KEYS:
            self._step_bytes = 2 * self._step_bytes or 1
            keys = self._keys.pop()
            self._keys.append(keys.take(pa.array(range(0, len(keys), 2))))
