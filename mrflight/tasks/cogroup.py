"""Two tables of a partition that are joined before they are reduced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import pyarrow as pa

from mrflight.system.scratch import ScratchFolder
from mrflight.tasks.operators.hash_join import Join, can_broadcast, joined
from mrflight.tasks.operators.join_output import JoinPlan
from mrflight.tasks.operators.sql_reduce import SqlReduce
from mrflight.tasks.stage_rows import Rows, SharedTable
from mrflight.tasks.task_memory import TaskMemory


class JoinCoGroup(msgspec.Struct, frozen=True):
    """A join of the tables of two inputs, by their names."""

    left: str
    right: str
    join: Join

    def check(self, schemas: Mapping[str, pa.Schema]) -> pa.Schema:
        """See `CoGroup.check`; raises as `Join.result_schema`."""
        return self.join.result_schema(schemas[self.left], schemas[self.right])

    def shared(self, schemas: Mapping[str, pa.Schema]) -> dict[str, bool]:
        """See `CoGroup.shared`: either side; the rest are the other's rows that meet none.

        Not the right of a semi or an anti join: whether a left row is there would be known once
        all shares of the right have met it. These joins make no pairs, so that the one task with
        all of the right is short.
        """
        how = self.join.how
        shared = {self.left: not can_broadcast(how, is_left=False)}
        if how not in ("semi", "anti"):
            shared[self.right] = not can_broadcast(how, is_left=True)
        return shared

    def apply(
        self, tables: Mapping[str, Rows], space: TaskMemory, shared: SharedTable | None = None
    ) -> Rows:
        """See `CoGroup.apply`."""
        plan = self.join.plan(tables[self.left][0], tables[self.right][0])
        if shared is not None:
            side = plan.left if shared.name == self.left else plan.right
            plan = plan.rest(side) if shared.is_rest else plan.of_share(side)
        return plan.result, self._rows(plan, tables, space)

    def _rows(
        self, plan: JoinPlan, tables: Mapping[str, Rows], space: TaskMemory
    ) -> Iterator[pa.RecordBatch]:
        left, right = (tables[name][1] for name in (self.left, self.right))
        with ScratchFolder("join", space.folder) as scratch:
            for table in joined(plan, left, right, space.rows_bytes, scratch):
                yield from table.to_batches()


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
