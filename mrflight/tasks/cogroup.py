"""The protocol of co-groups, which make one table of the tables of a partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

import pyarrow as pa

from mrflight.tasks.task_memory import TaskMemory

Rows = tuple[pa.Schema, Iterator[pa.RecordBatch]]
"""A table as its schema and its batches, which can be read once."""


class SlicedTable(NamedTuple):
    """The table that is sliced over several tasks, as one of these tasks sees it."""

    name: str
    is_remainder: bool
    """True if the task makes the outer remainder, and reads the whole table."""


class CoGroup(Protocol):
    """Combines the tables of a partition to one table. Picklable."""

    def check(self, schemas: Mapping[str, pa.Schema]) -> pa.Schema:
        """Return the schema of the result for these tables. Raises JobError."""

    def sliceable(self, schemas: Mapping[str, pa.Schema]) -> Mapping[str, bool]:
        """Return the tables that can be sliced over tasks. Each task reads all rows of the others.

        The value is True if the table leaves an outer remainder for one more task. Raises as
        `check` does.
        """

    def apply(
        self, tables: Mapping[str, Rows], task_memory: TaskMemory, sliced: SlicedTable | None = None
    ) -> Rows:
        """Return the rows of the result. Local files are removed when these end or are closed.

        The results for all slices of ``sliced`` and for the outer remainder, if there is one, are
        together the result for the whole table. All have the same schema.
        """
