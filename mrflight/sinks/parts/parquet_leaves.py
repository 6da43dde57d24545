"""Which columns of a parquet file a column of a schema becomes."""

from __future__ import annotations

import pyarrow as pa


def leaf_paths(field: pa.Field) -> list[str]:
    """The paths of a field's leaves in parquet's schema, in order; of a flat one its name."""
    kind, name = field.type, field.name
    if pa.types.is_struct(kind):
        return [f"{name}.{path}" for inner in kind for path in leaf_paths(inner)]
    if pa.types.is_map(kind):
        pair = [kind.key_field.with_name("key"), kind.item_field.with_name("value")]
        return [f"{name}.key_value.{path}" for inner in pair for path in leaf_paths(inner)]
    if pa.types.is_nested(kind) and kind.num_fields == 1:  # every list
        return [f"{name}.list.{path}" for path in leaf_paths(kind.field(0).with_name("element"))]
    return [name]
