"""A map that is SQL: rows of one input, each by itself."""

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
from mrflight.compute.sql.plans import explain_not_row_wise, reads_floats, result_of, used_columns
from mrflight.errors import ColumnNotFoundError, JobFileError
from mrflight.system.in_common import InCommon

if TYPE_CHECKING:
    from datafusion import DataFrame

GROUP_ROWS = 2**18
"""Of small batches that go through a query together, which takes some 0.2 ms for each group."""

GROUP_BYTES = 8 * 2**20
"""As `GROUP_ROWS`, where rows are large."""

_BATCH_ROWS = 2**16
"""As which smaller batches of a result are put together; larger ones are as they come."""

_OPTIONS = {"datafusion.execution.batch_size": str(_BATCH_ROWS)}


class SqlMap(InCommon, msgspec.Struct, frozen=True):
    """A query of one input's rows that needs no other rows. Picklable."""

    text: str
    table: str
    """What the query calls the rows: as the input, unless told."""
    key_path: str
    """Where the job file has it, for messages."""

    def __str__(self) -> str:
        return self.text

    def check(self, schema: pa.Schema) -> pa.Schema:
        """The result's schema, in plain types.

        Raises JobFileError where it needs other rows or is wrong, and ColumnNotFoundError.
        """
        return result_of(self._planned(schema)[0], self.key_path)

    def columns(self, schema: pa.Schema) -> list[str]:
        """Those of ``schema`` that it needs, in their order, at least one. Raises as `check`."""
        found = used_columns(self._planned(schema)[0], {self.table: schema})[self.table]
        try:
            self.check(pa.schema([schema.field(name) for name in found]))
        except (JobFileError, ColumnNotFoundError):  # it names one that makes no difference
            return list(schema.names)
        return found

    def stream(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What becomes of the rows, in plain batches: at least one where one is given.

        All are of one schema. JobFileError where it cannot be told of the values.
        """
        from mrflight.compute.sql.planned_query import (  # what it is made of takes 10 ms to load
            PlannedQuery,
        )

        first = next(batches, None)
        if first is None:
            return
        planned, options = self._planned(first.schema)
        result = result_of(planned, self.key_path)
        schemas = {self.table: first.schema}
        with translate_errors(self.key_path, schemas):
            rows = PlannedQuery(self.text, self.table, first.schema, options)
        is_empty = True
        for group in _grouped(chain([first], batches)):
            with translate_errors(self.key_path, schemas):
                for batch in rows.through(group):
                    is_empty = False
                    yield to_canonical(batch, result)
        if is_empty:
            yield empty_batch(result)

    def _planned(self, schema: pa.Schema) -> tuple[DataFrame, dict[str, str]]:
        """The query of no rows, once it has been found to need none but each; and its options."""
        return _planned(self, TableSchemas.of({self.table: schema}))


@lru_cache(MAX_CACHED_PLANS)
def _planned(asked: SqlMap, tables: TableSchemas) -> tuple[DataFrame, dict[str, str]]:
    schemas = dict(tables.schemas)
    check_installed(asked.key_path)
    with translate_errors(asked.key_path, schemas):
        rows = _planned_with(_OPTIONS, asked, schemas[asked.table])
        if reads_floats(rows, schemas):
            return rows, _OPTIONS
        exact = _OPTIONS | EXACT
        return _planned_with(exact, asked, schemas[asked.table]), exact


def _planned_with(options: dict[str, str], asked: SqlMap, schema: pa.Schema) -> DataFrame:
    session = new_session(options)
    add_table(session, asked.table, [empty_batch(schema)])
    rows = query(session, asked.text)
    if reason := explain_not_row_wise(rows, asked.table):
        raise JobFileError(
            f"{asked.key_path}: a map is given one row at a time, and this sql {reason}"
        )
    rows.execution_plan()  # which finds what is wrong with types
    return rows


def _grouped(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Small batches together, none of which is empty if another is not."""
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
