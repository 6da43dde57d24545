"""The columns that are read of an input with a filter: those that it gives, and that it needs."""

from __future__ import annotations

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
