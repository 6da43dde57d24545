"""Which casts keep the values of a key: what differs before them differs after them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
from pyarrow import types

_TEXT = r"(Large)?Utf8(View)?"
_BYTES = r"(Large)?Binary(View)?"
_WHOLE = r"U?Int\d+"
_NONE = r"(?!)"

_UNITS = {"s": "s", "ms": "ms", "us": "µs", "ns": "ns"}
"""As DataFusion shows them, the coarsest first."""


def keeps_values(kind: pa.DataType, casts: Sequence[str]) -> bool:
    """Whether a key of this type is told by what casts to these make of it, one after another.

    So as the values of two keys whose types meet are equal afterwards where they were before, and
    only there. What is in no list of ours is taken to make different values equal.
    """
    return all(re.fullmatch(_kept_by(kind), cast) is not None for cast in casts)


def is_whole(kind: pa.DataType, casts: Sequence[str]) -> bool:
    """Whether all of it is integers, and casts to such: these make one number of each value."""
    return types.is_integer(kind) and all(re.fullmatch(_WHOLE, cast) for cast in casts)


def _kept_by(kind: pa.DataType) -> str:
    if types.is_integer(kind) or types.is_boolean(kind):
        return f"{_WHOLE}|{_TEXT}"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return f"{_TEXT}|{_BYTES}"
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return _BYTES
    if types.is_fixed_size_binary(kind):
        return _BYTES
    if types.is_floating(kind):
        return "Float64"
    if types.is_decimal(kind):
        return rf"{_TEXT}|Decimal\d+\(\d+, {kind.scale}\)"
    if types.is_timestamp(kind):
        units = "|".join(list(_UNITS.values())[list(_UNITS).index(kind.unit) :])
        return rf"{_TEXT}|Timestamp\(({units}){', .+' if kind.tz else ''}\)"
    if types.is_date(kind):
        return rf"{_TEXT}|Timestamp\(({'|'.join(_UNITS.values())})\)"
    return _TEXT if types.is_time(kind) else _NONE
