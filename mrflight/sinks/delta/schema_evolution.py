"""Schema evolution: columns are added to a Delta table before the rows that need them.

The columns are added in a version of their own, because deltalake's transaction of files (1.6)
changes a table's schema only if it replaces all rows. A column without rows is harmless, for
example if the job fails after it was added. The next attempt finds it in the table.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from mrflight.sinks.delta.table import DeltaTable
from mrflight.storage.delta import import_deltalake


def missing_columns(table: DeltaTable, stored: pa.Schema) -> list[pa.Field]:
    """Return the fields of ``stored`` that the table does not have, in their order."""
    existing = table.schema.names
    return [field for field in stored if field.name not in existing]


def add_columns(
    table: DeltaTable, fields: list[pa.Field], job_id: str, **after_commit: Any
) -> None:
    """Commit the version after that of ``table`` with these columns, and bring ``table`` to it.

    The columns are nullable and come last; older files lack them and read as null.
    ``after_commit`` says what deltalake does then. Raises what deltalake raises, also if another
    writer was faster.
    """
    deltalake = import_deltalake()
    table.handle.alter.add_columns(
        deltalake.Schema.from_arrow(pa.schema(fields)).fields,
        commit_properties=deltalake.CommitProperties(
            custom_metadata={"mrflightJob": job_id}, max_commit_retries=0
        ),
        **after_commit,
    )
