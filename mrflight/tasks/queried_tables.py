"""Tables of a partition that sql makes one of, before they are reduced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import pyarrow as pa

from mrflight.system.scratch import ScratchFolder
from mrflight.tasks.operators.sql_reduce import SqlReduce
from mrflight.tasks.stage_rows import Rows, SharedTable
from mrflight.tasks.task_memory import TaskMemory


class SqlCoGroup(msgspec.Struct, frozen=True):
    """A query over the tables of inputs, by their names."""

    query: SqlReduce

    def check(self, schemas: Mapping[str, pa.Schema]) -> pa.Schema:
        """See `CoGroup.check`; raises as `SqlReduce.check`, and for what is not of a partition."""
        self.query.check_order(schemas)
        self.query.check_keys(schemas)
        return self.query.check(schemas)

    def shared(self, schemas: Mapping[str, pa.Schema]) -> dict[str, bool]:
        """See `CoGroup.shared`: only tables of which the answers for shares are all of it."""
        return dict.fromkeys(self.query.shared(schemas), False)

    def apply(
        self, tables: Mapping[str, Rows], space: TaskMemory, shared: SharedTable | None = None
    ) -> Rows:
        """See `CoGroup.apply`."""
        schema = self.check({name: schema for name, (schema, _) in tables.items()})
        return schema, self._rows(tables, space)

    def _rows(self, tables: Mapping[str, Rows], space: TaskMemory) -> Iterator[pa.RecordBatch]:
        with ScratchFolder("sql", space.folder) as scratch:
            yield from self.query.apply(tables, space.memory_bytes, scratch)
