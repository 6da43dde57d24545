"""Plans queries over tables without rows, and caches the plans for later tasks of the process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from mrflight.compute.schemas import empty_batch
from mrflight.compute.sql.engine import (
    EXACT,
    add_table,
    check_installed,
    new_session,
    translate_errors,
)
from mrflight.compute.sql.plans import MAX_PLANS, has_floats, reads_floats, used_columns
from mrflight.compute.sql.row_steps import QueryOfRows, plan_rows
from mrflight.errors import ColumnNotFoundError, JobFileError

if TYPE_CHECKING:
    from datafusion import DataFrame

Planned = tuple["DataFrame", dict[str, str]]
"""A query planned over no rows, and the options that it was planned with."""


@dataclass(frozen=True)
class TableSchemas:
    """The tables that a query is planned over; equal if their schemas and metadata are equal."""

    schemas: tuple[tuple[str, pa.Schema], ...]

    @classmethod
    def of(cls, schemas: Mapping[str, pa.Schema]) -> TableSchemas:
        """Return the schemas by the names of the tables."""
        return cls(tuple(schemas.items()))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TableSchemas):
            return NotImplemented
        both = zip(self.schemas, other.schemas, strict=False)
        return len(self.schemas) == len(other.schemas) and all(
            name == name_there and schema.equals(there, check_metadata=True)
            for (name, schema), (name_there, there) in both
        )


def plan_query(wanted: QueryOfRows, key_path: str, schemas: Mapping[str, pa.Schema]) -> Planned:
    """Return the plan of a query; raise JobFileError or ColumnNotFoundError if it is wrong.

    Several tables need a query in SQL.
    """
    return _plan(wanted, key_path, TableSchemas.of(schemas))


def needed_columns(
    rows: DataFrame,
    schemas: Mapping[str, pa.Schema],
    check: Callable[[dict[str, pa.Schema]], object],
) -> dict[str, list[str]]:
    """Return the columns that a query needs of each table, in their order, at least one.

    ``check`` plans the query again over these columns only. If that fails, because the query names
    a column that it does not need, return all columns.
    """
    used = used_columns(rows, schemas)
    try:
        check({t: pa.schema([schema.field(n) for n in used[t]]) for t, schema in schemas.items()})
    except (JobFileError, ColumnNotFoundError):
        return {table: list(schema.names) for table, schema in schemas.items()}
    return used


@lru_cache(MAX_PLANS)
def _plan(wanted: QueryOfRows, key_path: str, tables: TableSchemas) -> Planned:
    schemas = dict(tables.schemas)
    check_installed(key_path)
    with translate_errors(key_path, schemas):
        if any(map(has_floats, schemas.values())):
            rows = _plan_with({}, wanted, schemas)
            if reads_floats(rows, schemas):
                return rows, {}
        return _plan_with(EXACT, wanted, schemas), EXACT


def _plan_with(
    options: dict[str, str], wanted: QueryOfRows, schemas: Mapping[str, pa.Schema]
) -> DataFrame:
    session = new_session(options)
    for name, schema in schemas.items():
        add_table(session, name, [empty_batch(schema)])
    rows = plan_rows(session, wanted, next(iter(schemas)))
    rows.execution_plan()  # raises for types that do not fit
    return rows
