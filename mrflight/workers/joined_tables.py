"""Two tables of a partition that are joined before they are reduced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from mrflight.scratch import ScratchFolder
from mrflight.workers.joins import Join, can_broadcast
from mrflight.workers.stage_rows import Rows
from mrflight.workers.workspace import Workspace


@dataclass(frozen=True)
class JoinedTables:
    """A join of the tables of two inputs, by their names."""

    left: str
    right: str
    join: Join

    def check(self, schemas: Mapping[str, pa.Schema]) -> pa.Schema:
        """See `Meeting.check`; raises as `Join.result_schema`."""
        return self.join.result_schema(schemas[self.left], schemas[self.right])

    def shared(self, schemas: Mapping[str, pa.Schema]) -> list[str]:
        """See `Meeting.shared`."""
        how = self.join.how
        sides = ((self.left, False), (self.right, True))  # and whether the other is the left
        return [name for name, is_left in sides if can_broadcast(how, is_left=is_left)]

    def apply(self, tables: Mapping[str, Rows], space: Workspace) -> Rows:
        """See `Meeting.apply`."""
        schema = self.join.result_schema(tables[self.left][0], tables[self.right][0])
        return schema, self._rows(tables, space)

    def _rows(self, tables: Mapping[str, Rows], space: Workspace) -> Iterator[pa.RecordBatch]:
        with ScratchFolder("join", space.folder) as scratch:
            joined = self.join.apply(
                tables[self.left], tables[self.right], space.rows_bytes, scratch
            )
            for table in joined:
                yield from table.to_batches()
