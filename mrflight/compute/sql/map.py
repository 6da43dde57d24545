"""Maps rows by SQL, which sees each row of one input by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from mrflight.compute.layout import to_canonical
from mrflight.compute.schemas import empty_batch
from mrflight.compute.sql.bounds import bounded_columns, conditions_on_bounds, has_bounds
from mrflight.compute.sql.engine import add_table, new_session, quoted, translate_errors
from mrflight.compute.sql.plan_cache import Planned, needed_columns, plan_query
from mrflight.compute.sql.plans import (
    conditions_on,
    explain_not_row_wise,
    result_schema,
    scan_conditions,
    used_columns,
)
from mrflight.compute.sql.row_steps import QueryOfRows, RowSteps
from mrflight.config.row_steps import ExpressionStep
from mrflight.errors import ColumnNotFoundError, JobFileError
from mrflight.system.shared_payload import SharedPayload

if TYPE_CHECKING:
    from datafusion import Expr

GROUP_ROWS = 2**18
"""The rows of a group of small batches that goes through a query at once. A group costs about
0.2 ms."""

GROUP_BYTES = 8 * 2**20
"""The bytes of such a group."""

_BATCH_ROWS = 2**16
"""Smaller batches of a result are coalesced to this many rows. Larger ones are passed on
unchanged."""

_OPTIONS = {"datafusion.execution.batch_size": str(_BATCH_ROWS)}


class SqlMap(SharedPayload, msgspec.Struct, frozen=True):
    """A query that maps each row of one input by itself. Picklable."""

    query: QueryOfRows
    table: str
    """The table that the query reads: the input's name, unless ``sql_table`` is set."""
    key_path: str
    """The key path in the job file, or the calls of the steps, for messages."""
    all_columns: pa.Schema | None = None
    """The table with the columns that are not read, because the query does not need them; None if
    all are read."""

    @classmethod
    def of_steps(cls, *steps: ExpressionStep) -> SqlMap:
        """Return the query of some steps, of which there is at least one."""
        query = RowSteps(steps)
        return cls(query, steps[0].table, str(query))

    def __str__(self) -> str:
        return str(self.query)

    def only(self, columns: Sequence[str]) -> SqlMap:
        """Return a map to these columns; a query in SQL may make others, too."""
        if isinstance(self.query, str):
            return self
        return replace(self, query=replace(self.query, needed=tuple(columns)))

    def of(self, schema: pa.Schema) -> SqlMap:
        """Return the map for rows of which only `columns` are read."""
        return replace(self, all_columns=schema)

    def check(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of the result, in plain types.

        Raises JobFileError if the query needs other rows or is wrong, and ColumnNotFoundError.
        """
        return result_schema(self._plan(schema)[0], self.key_path)

    def columns(self, schema: pa.Schema) -> list[str]:
        """Return the columns of ``schema`` that the query needs, at least one.

        Raises as `check` does.
        """
        return used_columns(self._plan(schema)[0], {self.table: schema})[self.table]

    def columns_alone(self, schema: pa.Schema) -> list[str]:
        """Return the columns of ``schema`` that the query can be planned over without the others.

        Raises as `check` does.
        """
        tables = {self.table: schema}
        return needed_columns(
            self._plan(schema)[0], tables, lambda needed: self.check(needed[self.table])
        )[self.table]

    def can_match(self, schema: pa.Schema, values: pa.RecordBatch) -> list[bool]:
        """Return for each row of ``values`` whether rows with these values can be in the result.

        ``values`` has some of the columns of ``schema``, perhaps with other types. The answer is
        true if the query, or what it would do with the values, fails: then the map tells why.
        """
        names = set(values.schema.names)
        types = [
            values.schema.field(field.name) if field.name in names else field for field in schema
        ]
        try:
            conditions = conditions_on(self._plan(pa.schema(types))[0], names)
            with translate_errors(self.key_path, {self.table: values.schema}):
                return _hold(conditions, self.table, values)
        except (JobFileError, ColumnNotFoundError):
            return [True] * values.num_rows

    def bounded_columns(self, schema: pa.Schema) -> set[str]:
        """Return the columns whose bounds can tell that rows are not in the result.

        There are none if the query is wrong: then the map tells why.
        """
        try:
            found = map(bounded_columns, scan_conditions(self._plan(schema)[0]))
            return {name for each in found for name in each if has_bounds(schema.field(name).type)}
        except (JobFileError, ColumnNotFoundError):
            return set()

    def can_match_bounds(self, schema: pa.Schema, bounds: pa.RecordBatch) -> list[bool]:
        """Return for each row of a `bounds_table` whether rows within can be in the result.

        ``bounds`` are those of some columns of `bounded_columns`.
        """
        conditions = scan_conditions(self._plan(schema)[0])
        with translate_errors(self.key_path, {self.table: bounds.schema}):
            return _hold(conditions_on_bounds(conditions, bounds), self.table, bounds)

    def stream(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the result in canonical batches: at least one if there is any input.

        All have one schema. Raises JobFileError if the query fails for the values.
        """
        # Importing this module takes 10 ms.
        from mrflight.compute.sql.planned_query import PlannedQuery, TableSchema

        first = next(batches, None)
        if first is None:
            return
        planned, options = self._plan(first.schema)
        result = result_schema(planned, self.key_path)
        schemas = {self.table: first.schema}
        with translate_errors(self.key_path, schemas):
            table = TableSchema(self._all_of(first.schema), first.schema)
            rows = PlannedQuery(self.query, self.table, table, {**_OPTIONS, **options})
        is_empty = True
        for group in _group_batches(chain([first], batches)):
            with translate_errors(self.key_path, schemas):
                for batch in rows.run(group):
                    is_empty = False
                    yield to_canonical(batch, result)
        if is_empty:
            yield empty_batch(result)

    def _plan(self, schema: pa.Schema) -> Planned:
        """Return the plan. Raise JobFileError if the query needs more than one row at a time."""
        planned = plan_query(self.query, self.key_path, {self.table: self._all_of(schema)})
        if reason := explain_not_row_wise(planned[0], self.table):
            raise JobFileError(
                f"{self.key_path}: a map sees one row at a time, but this sql {reason}"
            )
        return planned

    def _all_of(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema with the columns that are not read."""
        if self.all_columns is None:
            return schema
        read = {field.name: field for field in schema}
        return pa.schema([read.get(field.name, field) for field in self.all_columns])


def _hold(conditions: list[Expr], table: str, values: pa.RecordBatch) -> list[bool]:
    """Return for each row whether all conditions are true."""
    if not conditions:
        return [True] * values.num_rows
    session = new_session({"datafusion.execution.batch_size": str(max(1, values.num_rows))})
    add_table(session, table, [values])
    named = [condition.alias(f"c{number}") for number, condition in enumerate(conditions)]
    held = pa.Table.from_batches(session.table(quoted(table)).select(*named).collect())
    return [all(row.values()) for row in held.to_pylist()]


def _group_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Yield groups of small batches. A group has no rows only if no batch has any."""
    group: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        group.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= GROUP_ROWS or size >= GROUP_BYTES:
            yield group
            group, rows, size = [], 0, 0
    if group:
        yield group
