"""Rows that are held, and what they weigh."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa


class RowBuffer:
    """Tables in their order; ``concat`` makes one of them."""

    def __init__(self, concat: Callable[[Sequence[pa.Table]], pa.Table] = pa.concat_tables) -> None:
        self._concat = concat
        self._tables: list[pa.Table] = []
        self.rows = 0
        self.bytes = 0

    def append(self, table: pa.Table) -> None:
        self._tables.append(table)
        self.rows += table.num_rows
        self.bytes += table.nbytes

    def fill(self, batches: Iterator[pa.RecordBatch], most_bytes: float) -> bool:
        """Take batches until what is held passes so many bytes; False where they end before.

        With the last of them it may pass as well: then True, and the next call takes nothing.
        """
        for batch in batches:
            self.append(pa.Table.from_batches([batch]))
            if self.bytes > most_bytes:
                return True
        return False

    def pop(self) -> pa.Table:
        """All of them as one; nothing is left. With nothing held it has no columns."""
        tables, self._tables, self.rows, self.bytes = self._tables, [], 0, 0
        return self._concat(tables) if tables else pa.table({})
