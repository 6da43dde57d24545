"""The types that a key column may have, and the layout of their values in Arrow's buffers."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
from pyarrow import lib

_ENCODINGS_LIMIT = 8
"""The most dictionaries, runs and extensions within each other; real data has two."""


class Layout(NamedTuple):
    """A layout that the kernel knows, and the bytes of a value or offset.

    The bytes are 0 if the layout fixes them.
    """

    name: str
    width: int


_LAYOUTS = {
    lib.Type_NA: Layout("null", 0),
    lib.Type_BOOL: Layout("bool", 0),
    lib.Type_INT8: Layout("signed", 1),
    lib.Type_INT16: Layout("signed", 2),
    lib.Type_INT32: Layout("signed", 4),
    lib.Type_INT64: Layout("signed", 8),
    lib.Type_UINT8: Layout("unsigned", 1),
    lib.Type_UINT16: Layout("unsigned", 2),
    lib.Type_UINT32: Layout("unsigned", 4),
    lib.Type_UINT64: Layout("unsigned", 8),
    lib.Type_DATE32: Layout("signed", 4),
    lib.Type_DATE64: Layout("signed", 8),
    lib.Type_TIME32: Layout("signed", 4),
    lib.Type_TIME64: Layout("signed", 8),
    lib.Type_TIMESTAMP: Layout("signed", 8),
    lib.Type_DURATION: Layout("signed", 8),
    lib.Type_HALF_FLOAT: Layout("float", 2),
    lib.Type_FLOAT: Layout("float", 4),
    lib.Type_DOUBLE: Layout("float", 8),
    lib.Type_DECIMAL32: Layout("decimal", 4),
    lib.Type_DECIMAL64: Layout("decimal", 8),
    lib.Type_DECIMAL128: Layout("decimal", 16),
    lib.Type_DECIMAL256: Layout("decimal", 32),
    lib.Type_STRING: Layout("binary", 4),
    lib.Type_BINARY: Layout("binary", 4),
    lib.Type_LARGE_STRING: Layout("binary", 8),
    lib.Type_LARGE_BINARY: Layout("binary", 8),
    lib.Type_STRING_VIEW: Layout("view", 0),
    lib.Type_BINARY_VIEW: Layout("view", 0),
    lib.Type_DICTIONARY: Layout("dictionary", 0),
    lib.Type_RUN_END_ENCODED: Layout("runs", 0),
}


def layout(type_: pa.DataType) -> Layout | None:
    """Return how values of ``type_`` lie in memory; None if it has no canonical bytes.

    Only the outermost type is looked at, which must not be an extension type.
    """
    if type_.id == lib.Type_FIXED_SIZE_BINARY:
        return Layout("fixed", type_.byte_width)
    return _LAYOUTS.get(type_.id)


def has_canonical_bytes(type_: pa.DataType) -> bool:
    """Return whether values of ``type_``, behind all its encodings, can be hashed."""
    for _ in range(_ENCODINGS_LIMIT):
        if isinstance(type_, pa.BaseExtensionType):
            type_ = type_.storage_type
        elif pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_):
            type_ = type_.value_type
        else:
            return layout(type_) is not None
    return False
