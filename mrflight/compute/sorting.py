"""Orders rows by sort keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyarrow import types

from mrflight.compute.arrays import to_arrow
from mrflight.compute.sort_codes import Rows, group_codes, sort_codes
from mrflight.compute.types import canonical_type
from mrflight.config.sort_key import SortKey
from mrflight.errors import ColumnNotFoundError, KeyTypeError


def check_sortable(schema: pa.Schema, keys: Sequence[SortKey], rows: str = "a mapped row") -> None:
    """Raise ColumnNotFoundError or KeyTypeError if rows of ``schema`` cannot be sorted like this.

    Messages call the rows ``rows``.
    """
    for key in keys:
        found = schema.get_all_field_indices(key.column)
        if not found:
            raise _no_such_column(key.column, schema.names, rows)
        if len(found) > 1:
            raise ColumnNotFoundError(
                f"{rows} has {len(found)} columns {key.column!r}; rename them to sort by one"
            )
        if not has_order(kind := schema.field(found[0]).type):
            raise KeyTypeError(
                f"column {key.column!r} is {canonical_type(kind)}, which has no order; take "
                "another key, or make a plain column of it in the map"
            )


def _no_such_column(column: str, names: list[str], rows: str) -> ColumnNotFoundError:
    """Return the error. If the last word looks like a direction, say how to write one."""
    error = ColumnNotFoundError.among(column, names, rows)
    before, _, last = column.rpartition(" ")
    word = next((word for word in ("desc", "asc") if last.lower().startswith(word)), None)
    if word is None or before not in names:
        return error
    return ColumnNotFoundError(f"{error}; write '{before} {word}' to order by {before!r}")


def has_order(kind: pa.DataType) -> bool:
    """Return whether values of this type, in any layout, can be sorted."""
    kind = canonical_type(kind)
    return bool(
        (types.is_primitive(kind) and not types.is_interval(kind))
        or types.is_decimal(kind)
        or types.is_string(kind)
        or types.is_binary(kind)
        or types.is_fixed_size_binary(kind)
    )


def sort_indices(table: pa.Table, keys: Sequence[SortKey]) -> pa.Array:
    """Return the order of the rows by the keys. Rows with equal keys keep their order.

    The numbers are uint32 if that is enough, because taking rows by wider numbers takes longer.
    """
    return indices(sort_codes(table, keys).order())


def indices(rows: Rows) -> pa.Array:
    """Return row numbers as an array for Arrow's take."""
    return to_arrow(rows.astype(np.uint32) if len(rows) < 2**32 else rows)


def is_new(rows: pa.Table) -> pa.Array:
    """Return for each of some sorted rows whether it differs from the row before it."""
    codes = group_codes(rows, rows.column_names).values
    new = np.ones(rows.num_rows, np.bool_)
    np.not_equal(codes[1:], codes[:-1], out=new[1:])
    return to_arrow(new)
