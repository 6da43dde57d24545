"""The one-process answer that every job's result is compared with: a few lines of pyarrow."""

from __future__ import annotations

import pyarrow as pa


def grouped(table: pa.Table, keys: list[str], **aggregates: tuple[str, str]) -> pa.Table:
    """One row per key: ``grouped(table, ["url"], clicks=("weight", "sum"))``."""
    result = table.group_by(keys, use_threads=False).aggregate(list(aggregates.values()))
    return result.select(
        [*keys, *(f"{column}_{function}" for column, function in aggregates.values())]
    ).rename_columns([*keys, *aggregates])


def rows(table: pa.Table) -> list[tuple[object, ...]]:
    """The rows of a table, in an order that does not depend on how it was made."""
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True), key=repr)
