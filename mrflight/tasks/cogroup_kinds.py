"""The two co-groups: a join, and SQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import pyarrow as pa

from mrflight.system.scratch import ScratchFolder
from mrflight.tasks.cogroup import Rows, SlicedTable
from mrflight.tasks.operators.hash_join import Join, can_broadcast, join_tables
from mrflight.tasks.operators.join_output import JoinPlan
from mrflight.tasks.operators.sql_reduce import SqlReduce
from mrflight.tasks.task_memory import TaskMemory


class JoinCoGroup(msgspec.Struct, frozen=True):
    """Joins the tables of two inputs."""

    left: str
    right: str
    join: Join

    def check(self, schemas: Mapping[str, pa.Schema]) -> pa.Schema:
        """Return the schema of the result. Raises as `Join.result_schema` does."""
        return self.join.result_schema(schemas[self.left], schemas[self.right])

    def sliceable(self, schemas: Mapping[str, pa.Schema]) -> dict[str, bool]:
        """Return the sides that can be sliced; see `CoGroup.sliceable`.

        Either side can, and the outer remainder is the unmatched rows of the other side. An
        exception is the right side of a semi or an anti join: whether a left row is in the result
        is only known once all slices of the right have been probed. These joins make no pairs, so
        the one task that has all of the right side is short.
        """
        how = self.join.how
        sliced = {self.left: not can_broadcast(how, is_left=False)}
        if how not in ("semi", "anti"):
            sliced[self.right] = not can_broadcast(how, is_left=True)
        return sliced

    def apply(
        self, tables: Mapping[str, Rows], task_memory: TaskMemory, sliced: SlicedTable | None = None
    ) -> Rows:
        """Return the rows of the result; see `CoGroup.apply`."""
        plan = self.join.plan(tables[self.left][0], tables[self.right][0])
        if sliced is not None:
            side = plan.left if sliced.name == self.left else plan.right
            plan = plan.outer_remainder(side) if sliced.is_remainder else plan.for_slice(side)
        return plan.result, self._rows(plan, tables, task_memory)

    def _rows(
        self, plan: JoinPlan, tables: Mapping[str, Rows], task_memory: TaskMemory
    ) -> Iterator[pa.RecordBatch]:
        left, right = (tables[name][1] for name in (self.left, self.right))
        with ScratchFolder("join", task_memory.folder) as scratch:
            for table in join_tables(plan, left, right, task_memory.rows_bytes, scratch):
                yield from table.to_batches()


class SqlCoGroup(msgspec.Struct, frozen=True):
    """Runs a query over the tables of inputs."""

    query: SqlReduce

    def check(self, schemas: Mapping[str, pa.Schema]) -> pa.Schema:
        """Return the schema of the result.

        Raises as `SqlReduce.check` does, and if the query cannot run for each partition by itself.
        """
        self.query.check_order(schemas)
        self.query.check_keys(schemas)
        return self.query.check(schemas)

    def sliceable(self, schemas: Mapping[str, pa.Schema]) -> dict[str, bool]:
        """Return the tables that can be sliced. None of them leaves an outer remainder."""
        return dict.fromkeys(self.query.sliceable(schemas), False)

    def apply(
        self, tables: Mapping[str, Rows], task_memory: TaskMemory, sliced: SlicedTable | None = None
    ) -> Rows:
        """Return the rows of the result; see `CoGroup.apply`."""
        schema = self.check({name: schema for name, (schema, _) in tables.items()})
        return schema, self._rows(tables, task_memory)

    def _rows(
        self, tables: Mapping[str, Rows], task_memory: TaskMemory
    ) -> Iterator[pa.RecordBatch]:
        with ScratchFolder("sql", task_memory.folder) as scratch:
            yield from self.query.apply(tables, task_memory.memory_bytes, scratch)
