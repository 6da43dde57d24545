"""Columns that a job brings to a Delta table, which has them before its rows come.

That is a version of its own: deltalake's transaction of files (1.6) changes a table's schema only
where it replaces all rows. A column is harmless without the rows that it was added for, as where
the job then fails; the next try finds it there.
"""

from __future__ import annotations

import pyarrow as pa

from mrflight.sinks.delta.table import DeltaTable
from mrflight.storage.delta import import_deltalake


def missing_columns(existing: pa.Schema, stored: pa.Schema) -> list[pa.Field]:
    """Those of ``stored`` that a table has not yet, in their order."""
    return [field for field in stored if field.name not in existing.names]


def add_columns(table: DeltaTable, fields: list[pa.Field], job_id: str) -> None:
    """Commit them as the version right after this one, which ``table`` is then.

    They are nullable and come last; older files have none of them, and read as null. Raises what
    deltalake does, also where another writer was faster.
    """
    deltalake = import_deltalake()
    table.handle.alter.add_columns(
        deltalake.Schema.from_arrow(pa.schema(fields)).fields,
        commit_properties=deltalake.CommitProperties(
            custom_metadata={"mrflightJob": job_id}, max_commit_retries=0
        ),
    )
