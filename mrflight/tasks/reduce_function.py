"""Calls a user's reduce function with the rows of a partition, and checks what it returns."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import msgspec
import pyarrow as pa

from mrflight.compute.schemas import describe_difference
from mrflight.config.frames import (
    RETURNS,
    as_hinted,
    hinted_type,
    name_of_returned,
    returned_rows,
)
from mrflight.config.functions import FunctionRef, calling_user
from mrflight.errors import UserFunctionError
from mrflight.system.scratch import ScratchFolder
from mrflight.tasks.operators.grouped_apply import GroupedApply


class ReduceFunction(msgspec.Struct, frozen=True):
    """A user's function that makes a table of all rows of one or more keys."""

    ref: FunctionRef
    key: tuple[str, ...]
    """Where a partition that is too large is split; if empty, it is not split."""

    def results(
        self,
        partition: int,
        schema: pa.Schema,
        batches: Iterator[pa.RecordBatch],
        rows_bytes: int,
        scratch: ScratchFolder,
    ) -> Iterator[pa.Table]:
        """Yield the tables that the function returns for a partition, at least one.

        Raises UserFunctionError if it fails, if it returns no rows of a known kind, and if its
        tables have different schemas.
        """
        call = partial(self._call, partition)
        first: pa.Schema | None = None
        for table in GroupedApply(call, schema, self.key, rows_bytes, scratch).results(batches):
            first = first or table.schema
            if difference := describe_difference(first, table.schema):
                raise UserFunctionError(
                    f"the reduce function {self.ref} is called several times for partition "
                    f"{partition}, because it is larger than the task's memory, and its results "
                    f"differ: {difference}; return types that do not depend on the rows"
                )
            yield table

    def _call(self, partition: int, table: pa.Table) -> pa.Table:
        function = self.ref.load()
        wanted = hinted_type(function, f"the reduce function {self.ref}")
        what = (
            f"the reduce function {self.ref}, given partition {partition} of {table.num_rows} rows,"
        )
        with calling_user(what):
            result = function(as_hinted(table, wanted))
            rows = returned_rows(result, table.schema)
        if rows is None:
            raise UserFunctionError(
                f"the reduce function {self.ref} must return {RETURNS}; on partition {partition} "
                f"it returned {name_of_returned(result)}"
            )
        return rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
