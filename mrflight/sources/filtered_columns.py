"""The columns that are read of an input with a filter: those that it gives, and that it needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mrflight.config.input_spec import InputSpec

if TYPE_CHECKING:
    import pyarrow as pa


def before_filter(spec: InputSpec) -> InputSpec:
    """Return the input with all columns if it has a filter, which may need others than it gives."""
    return spec if spec.filter is None else replace(spec, columns=None)


def filtered_columns(name: str, spec: InputSpec, schema: pa.Schema) -> list[str]:
    """Return the columns to read of all columns of the input, in their order.

    Raises JobFileError and ColumnNotFoundError for a wrong filter.
    """
    if spec.filter is None or spec.columns is None:
        return list(schema.names)
    from mrflight.compute.sql.input_maps import filter_map

    sql_map = filter_map(name, spec)
    assert sql_map is not None, "the input has a filter"
    return sql_map.columns_alone(schema)


def with_columns(spec: InputSpec, needed: Sequence[str]) -> InputSpec:
    """Return the input, which reads some columns beside those that it gives."""
    if spec.columns is None or set(needed) <= set(spec.columns):
        return spec
    return replace(spec, columns=list(dict.fromkeys([*spec.columns, *needed])))


def table_columns(name: str, spec: InputSpec, schema: pa.Schema) -> list[str]:
    """Return the columns to read of a table, of which ``schema`` may have more.

    Raises the errors of `filtered_columns`.
    """
    if spec.filter is None and spec.columns is not None:
        return list(spec.columns)
    return filtered_columns(name, spec, schema)
