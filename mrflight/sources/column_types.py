"""Which types the columns of an input may have: what cannot be shuffled is refused by its name."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyarrow import types

from mrflight.errors import InputError


def check_column_types(schema: pa.Schema, key: str) -> None:
    """Raise InputError for a column whose type Arrow cannot take rows of, before anything runs.

    ``key`` is the key path of the input. pyarrow 26 cannot make valid arrays of run-end-encoded
    values within other types, ends the process as it takes the members of a union within a struct,
    and has no way to take rows of an extension type over string or list views.
    """
    for field in schema:
        for inner in _types_within(field.type):
            if why := _why_not(inner):
                raise InputError(
                    f"{key}: column {field.name!r} is {field.type}, and {why} within other types "
                    f"cannot be shuffled; leave the column out with {key}.columns, or write the "
                    "files with another type"
                )


def _why_not(kind: pa.DataType) -> str | None:
    if types.is_union(kind):
        return "unions"
    if types.is_run_end_encoded(kind):
        return "run-end-encoded values"
    return None


def _types_within(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Return the types that a type is made of, without itself."""
    if isinstance(kind, pa.BaseExtensionType):
        inner = [kind.storage_type]
    elif types.is_map(kind):
        inner = [kind.key_type, kind.item_type]
    elif types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        inner = [kind.value_type]
    else:
        inner = [kind.field(number).type for number in range(kind.num_fields)]
    for each in inner:
        yield each
        yield from _types_within(each)
