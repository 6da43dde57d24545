"""Makes the result of one partition's rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from mrflight.aggregates import Aggregate, check_aggregates
from mrflight.errors import UserFunctionError
from mrflight.functions import FunctionRef, calling_user
from mrflight.shuffle.layout import plain_schema
from mrflight.shuffle.partitioners import sort_indices


@dataclass(frozen=True)
class Reduction:
    """What is made of each partition: groups, a function's table, sorted rows, or its rows."""

    group_by: tuple[str, ...] = ()
    aggregates: tuple[Aggregate, ...] = ()
    function: FunctionRef | None = None
    sort_by: tuple[str, ...] = ()
    """Rows, or groups, come in this order; set where partitions are ranges of it."""

    def check(self, schema: pa.Schema) -> None:
        """Raise where rows of this schema cannot be reduced so."""
        check_aggregates(plain_schema(schema), self.group_by, self.aggregates)

    def apply(
        self, partition: int, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The result's schema and batches; a mere repartition streams, the rest is one table."""
        if not (self.group_by or self.function or self.sort_by):
            return schema, batches
        table = pa.Table.from_batches(batches, schema).combine_chunks()
        if self.group_by:
            from mrflight.workers.grouping import group

            table = group(table, self.group_by, self.aggregates)
        if self.function:
            table = _call(self.function, partition, table)
        if self.sort_by:
            table = table.take(sort_indices(table, self.sort_by))
        return table.schema, iter(table.to_batches())


def _call(ref: FunctionRef, partition: int, table: pa.Table) -> pa.Table:
    function = ref.load()
    what = f"the reduce function {ref}, given partition {partition} of {table.num_rows} rows,"
    with calling_user(what):
        result = function(table)
    if not isinstance(result, pa.Table):
        raise UserFunctionError(
            f"the reduce function {ref} must return a pyarrow.Table; on partition {partition} it "
            f"returned {type(result).__name__}"
        )
    return result
