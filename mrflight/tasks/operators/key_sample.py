"""A sample of the keys of streamed rows, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import pyarrow as pa

from mrflight.tasks.operators.spill_partitions import RowBuffer

MIN_KEYS = 512
"""The keys that are kept however large they are."""


class KeySample:
    """Samples keys about every ``step_bytes`` of rows, and every other one beyond ``max_bytes``.

    The distances are random, because rows often come in cycles (every day of every shop), of which
    even steps would see one part. The same rows give the same sample.
    """

    def __init__(self, names: Sequence[str], step_bytes: int, max_bytes: int) -> None:
        self._names = list(names)
        self._step_bytes = step_bytes
        self._max_bytes = max_bytes
        self._random = Random(0)
        self._next = 0
        """The row that is taken next, counted from the next batch on."""
        self._keys = RowBuffer()

    def taken_of(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches and sample them: the first row, then some."""
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
        row = min(self._next, 2 * step)  # rows may be larger than those that the last step was for
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
