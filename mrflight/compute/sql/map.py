"""Maps rows by SQL, which sees each row of one input by itself."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from mrflight.compute.layout import to_canonical
from mrflight.compute.schemas import empty_batch
from mrflight.compute.sql.engine import (
    EXACT,
    MAX_CACHED_PLANS,
    TableSchemas,
    add_table,
    check_installed,
    new_session,
    query,
    translate_errors,
)
from mrflight.compute.sql.plans import (
    explain_not_row_wise,
    reads_floats,
    result_schema,
    used_columns,
)
from mrflight.errors import ColumnNotFoundError, JobFileError
from mrflight.system.shared_payload import SharedPayload

if TYPE_CHECKING:
    from datafusion import DataFrame

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

    text: str
    table: str
    """The table that the query reads: the input's name, unless ``sql_table`` is set."""
    key_path: str
    """The key path in the job file, for messages."""

    def __str__(self) -> str:
        return self.text

    def check(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of the result, in plain types.

        Raises JobFileError if the query needs other rows or is wrong, and ColumnNotFoundError.
        """
        return result_schema(self._plan(schema)[0], self.key_path)

    def columns(self, schema: pa.Schema) -> list[str]:
        """Return the columns of ``schema`` that the query needs, at least one.

        Raises as `check` does.
        """
        found = used_columns(self._plan(schema)[0], {self.table: schema})[self.table]
        try:
            self.check(pa.schema([schema.field(name) for name in found]))
        except (JobFileError, ColumnNotFoundError):
            # The query names a column that it does not need.
            return list(schema.names)
        return found

    def stream(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the result in canonical batches: at least one if there is any input.

        All have one schema. Raises JobFileError if the query fails for the values.
        """
        # Importing this module takes 10 ms.
        from mrflight.compute.sql.planned_query import PlannedQuery

        first = next(batches, None)
        if first is None:
            return
        planned, options = self._plan(first.schema)
        result = result_schema(planned, self.key_path)
        schemas = {self.table: first.schema}
        with translate_errors(self.key_path, schemas):
            rows = PlannedQuery(self.text, self.table, first.schema, options)
        is_empty = True
        for group in _group_batches(chain([first], batches)):
            with translate_errors(self.key_path, schemas):
                for batch in rows.through(group):
                    is_empty = False
                    yield to_canonical(batch, result)
        if is_empty:
            yield empty_batch(result)

    def _plan(self, schema: pa.Schema) -> tuple[DataFrame, dict[str, str]]:
        """Plan the query over no rows, and return it with its options.

        Raises JobFileError if it needs more than one row at a time.
        """
        return _plan(self, TableSchemas.of({self.table: schema}))


@lru_cache(MAX_CACHED_PLANS)
def _plan(sql_map: SqlMap, tables: TableSchemas) -> tuple[DataFrame, dict[str, str]]:
    schemas = dict(tables.schemas)
    check_installed(sql_map.key_path)
    with translate_errors(sql_map.key_path, schemas):
        rows = _plan_with(_OPTIONS, sql_map, schemas[sql_map.table])
        if reads_floats(rows, schemas):
            return rows, _OPTIONS
        exact = _OPTIONS | EXACT
        return _plan_with(exact, sql_map, schemas[sql_map.table]), exact


def _plan_with(options: dict[str, str], sql_map: SqlMap, schema: pa.Schema) -> DataFrame:
    session = new_session(options)
    add_table(session, sql_map.table, [empty_batch(schema)])
    rows = query(session, sql_map.text)
    if reason := explain_not_row_wise(rows, sql_map.table):
        raise JobFileError(
            f"{sql_map.key_path}: a map sees one row at a time, but this sql {reason}"
        )
    rows.execution_plan()  # raises for types that do not fit
    return rows


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
