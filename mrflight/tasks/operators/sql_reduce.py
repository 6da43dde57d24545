"""Reduces a partition of each input by SQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pyarrow as pa

from mrflight.compute.layout import to_canonical, with_null_fields
from mrflight.compute.schemas import empty_batch
from mrflight.compute.sql.copartition_check import explain_not_copartitioned
from mrflight.compute.sql.engine import error_text, query, translate_errors
from mrflight.compute.sql.plan_cache import Planned, needed_columns, plan_query
from mrflight.compute.sql.plans import explain_not_sliceable, order_at_the_end, result_schema
from mrflight.errors import JobFailedError, JobFileError
from mrflight.system.scratch import ScratchFolder
from mrflight.tasks.operators.spill_partitions import (
    GracePartitioner,
    RowBuffer,
    SpillPartition,
)
from mrflight.tasks.operators.sql_run import SqlRun
from mrflight.units import format_bytes

HELD_FRACTION = 3
"""A third of the memory holds the inputs that fit. Other inputs are read from files."""

POOL_FRACTION = 2
"""Half of the memory is DataFusion's pool. It does not count all that it allocates."""

FILE_BATCH_BYTES = 2**18
"""The bytes of a batch that is read from a file. DataFusion holds several such batches."""

_NO_MEMORY = ("Resources exhausted", "Not enough memory", "no data to spill")
_NO_DISK = ("No space left on device", "os error")

Inputs = Mapping[str, tuple[pa.Schema, Iterator[pa.RecordBatch]]]
"""Tables by their names."""


class SqlReduce(msgspec.Struct, frozen=True):
    """A query over tables with the names of the inputs. Picklable."""

    text: str
    key_path: str
    """The key path in the job file, for messages."""
    stream: str | None = None
    """The table of which the query sees a slice. It sees all rows of the other tables."""
    keys: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """The keys of the tables of which the query sees a partition. Empty for one partition."""

    def check(self, schemas: Mapping[str, pa.Schema]) -> pa.Schema:
        """Return the schema of the result, in plain types.

        Raises JobFileError and ColumnNotFoundError.
        """
        rows = self._plan(schemas)[0]
        if self.stream and (reason := explain_not_sliceable(rows, self.stream)):
            raise JobFileError(
                f"{self.key_path}: {self.stream} has no key, so this sql runs over a slice of its "
                f"rows at a time, but it {reason}"
            )
        return result_schema(rows, self.key_path)

    def check_order(self, schemas: Mapping[str, pa.Schema]) -> None:
        """Raise JobFileError if the query would order or limit the result of each partition."""
        if clause := order_at_the_end(self._plan(schemas)[0]):
            raise JobFileError(
                f"{self.key_path}: this sql runs over a partition at a time, and would {clause} "
                "the rows of each; use reduce.sort_by and reduce.limit for the whole result"
            )

    def check_keys(self, schemas: Mapping[str, pa.Schema]) -> None:
        """Raise JobFileError if the results by partition differ from the result for all rows."""
        if not self.keys:
            return
        if reason := explain_not_copartitioned(self._plan(schemas)[0], self.keys, schemas):
            key_list = " and ".join(
                f"{table} by {', '.join(key)}" for table, key in self.keys.items()
            )
            raise JobFileError(
                f"{self.key_path}: this sql runs over a partition at a time, of {key_list}, but it "
                f"{reason}"
            )

    def sliceable(self, schemas: Mapping[str, pa.Schema]) -> list[str]:
        """Return the partitioned tables that can be sliced while the others are read whole.

        Raises as `check` does.
        """
        rows = self._plan(schemas)[0]
        return [table for table in self.keys if explain_not_sliceable(rows, table) is None]

    def columns(self, schemas: Mapping[str, pa.Schema]) -> dict[str, list[str]]:
        """Return the columns that the query needs of each table, in their order, at least one.

        Raises as `check` does.
        """
        return needed_columns(self._plan(schemas)[0], schemas, self.check)

    def apply(
        self, inputs: Inputs, memory_bytes: int, scratch: ScratchFolder
    ) -> Iterator[pa.RecordBatch]:
        """Yield the result in canonical batches, at least one.

        Rows that do not fit into memory go through files in the scratch folder, which exist until
        it is closed. Raises JobFileError if the query fails for the values, and JobFailedError if
        memory or disk do not suffice.
        """
        schemas = {name: schema for name, (schema, _) in inputs.items()}
        planned, options = self._plan(schemas)
        result = result_schema(planned, self.key_path)
        tables, row_bytes = self._hold_or_spill(
            inputs, self.columns(schemas), memory_bytes // HELD_FRACTION, scratch
        )
        is_empty = True
        run = SqlRun(tables, options, memory_bytes // POOL_FRACTION, scratch, row_bytes)
        for batch in self._results(run, schemas):
            is_empty = False
            yield to_canonical(batch, result)
        if is_empty:
            yield empty_batch(result)

    def _results(self, run: SqlRun, schemas: Mapping[str, pa.Schema]) -> Iterator[pa.RecordBatch]:
        """Yield the result. Joins are hash joins, or sort-merge joins if these do not fit."""
        for can_spill_joins in (False, True):
            has_begun, has_hash_join = False, False
            try:
                with translate_errors(self.key_path, schemas):
                    session = run.session(can_spill_joins)
                    rows = query(session, self.text)
                    plan = rows.execution_plan()
                    has_hash_join = "HashJoinExec" in plan.display_indent()
                    is_one = plan.partition_count == 1
                    # The other way to run it plans it again, which takes 1 ms.
                    for part in session.execute(plan, 0) if is_one else rows.execute_stream():
                        batch = part.to_pyarrow()
                        if batch.num_rows:
                            has_begun = True
                            yield batch
                return
            except JobFileError as error:
                if not any(sign in str(error.__cause__) for sign in _NO_MEMORY):
                    raise self._attribute_error(error) from error.__cause__
                if has_begun or not has_hash_join or can_spill_joins:
                    raise self._too_small(error, run.pool_bytes) from error.__cause__

    def _too_small(self, error: JobFileError, pool_bytes: int) -> JobFailedError:
        return JobFailedError(
            f"{self.key_path}: a partition is too large for the {format_bytes(pool_bytes)} that "
            "the sql of its task may use, and it cannot all be spilled to files; set more "
            "shuffle.partitions, or a larger cluster.memory "
            f"({error_text(error.__cause__ or error)})"
        )

    def _attribute_error(self, error: JobFileError) -> JobFileError | JobFailedError:
        """Return the error, as JobFailedError if the disk caused it and not the query."""
        if any(sign in str(error.__cause__) for sign in _NO_DISK):
            return JobFailedError(
                f"{error}; free space there, choose another cluster.spill_dir, or set more "
                "shuffle.partitions"
            )
        return error

    def _hold_or_spill(
        self, inputs: Inputs, used: dict[str, list[str]], max_bytes: int, scratch: ScratchFolder
    ) -> tuple[dict[str, list[pa.RecordBatch] | Path], int]:
        """Return the needed columns, in memory or in files, and the average bytes of a joined row.

        Each table can be read several times.
        """
        tables: dict[str, list[pa.RecordBatch] | Path] = {}
        row_bytes = 0
        for number, (name, (schema, batches)) in enumerate(inputs.items()):
            needed = pa.schema([schema.field(column) for column in used[name]])
            rows = (with_null_fields(batch.select(used[name])) for batch in batches)
            held = RowBuffer()
            if held.fill(rows, max_bytes):
                partition = _spill(held, rows, f"sql-{number}", scratch)
                (tables[name],) = partition.paths
                row_bytes += partition.bytes // partition.rows
            else:
                max_bytes -= held.bytes
                row_bytes += held.bytes // max(1, held.rows)
                kept = held.pop().to_batches() if held.rows else []
                tables[name] = kept or [empty_batch(needed)]
        return tables, row_bytes

    def _plan(self, schemas: Mapping[str, pa.Schema]) -> Planned:
        return plan_query(self.text, self.key_path, schemas)


def _spill(
    held: RowBuffer, rows: Iterator[pa.RecordBatch], name: str, scratch: ScratchFolder
) -> SpillPartition:
    """Write all held rows and all of ``rows`` to one file."""
    with GracePartitioner(scratch, name) as writer:
        held_batches = held.pop().to_batches()
        while held_batches:
            _write(writer, held_batches.pop(0))
        for batch in rows:
            _write(writer, batch)
        (partition,) = writer.finish()
    return partition


def _write(writer: GracePartitioner, batch: pa.RecordBatch) -> None:
    rows = max(1, batch.num_rows * FILE_BATCH_BYTES // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, rows):
        writer.write(batch.slice(start, rows))
