"""Types without their layout: what values a column has, however Arrow holds them.

The same strings may be large strings, views, a dictionary or runs, and a list
or struct may say that it has no nulls within. Those are no other values, so
columns that differ in no more than that go together: as files of one input,
as blocks of one partition, and as parts of one table.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyarrow import types


def plain_type(
    kind: pa.DataType,
    leaf: Callable[[pa.DataType], pa.DataType] = lambda leaf: leaf,
    *,
    keep_fixed_size: bool = True,
) -> pa.DataType:
    """The type with 32-bit offsets, nothing encoded, and fields within that may be null.

    ``leaf`` is applied to what is not nested, and to list views, which have no other layout that
    they could be cast to: that drops values in pyarrow 26. Lists of a fixed size may become lists.
    """

    def inner(kind: pa.DataType) -> pa.DataType:
        if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
            return inner(kind.value_type)
        if types.is_large_string(kind) or types.is_string_view(kind):
            return leaf(pa.string())
        if types.is_large_binary(kind) or types.is_binary_view(kind):
            return leaf(pa.binary())
        if types.is_fixed_size_list(kind) and keep_fixed_size:
            return pa.list_(inner(kind.value_type), kind.list_size)
        if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
            return pa.list_(inner(kind.value_type))
        if types.is_map(kind):
            return pa.map_(inner(kind.key_type), inner(kind.item_type))
        if types.is_struct(kind):
            return pa.struct([(field.name, inner(field.type)) for field in kind])
        return leaf(kind)

    return inner(kind)
