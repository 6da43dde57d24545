"""Comparing schemas, and saying how they differ."""

from __future__ import annotations

import pyarrow as pa


def describe_difference(expected: pa.Schema, actual: pa.Schema) -> str | None:
    """How ``actual`` differs from ``expected`` in names, order or types; None where it does not.

    Whether a column may be null, and metadata, make no difference.
    """
    for name in expected.names:
        if name not in actual.names:
            return f"column {name!r} is missing"
    for name in actual.names:
        if name not in expected.names:
            return f"column {name!r} is new"
    for name in expected.names:
        before, now = expected.field(name).type, actual.field(name).type
        if before != now:
            return f"column {name!r} is {now}, not {before}"
    if expected.names != actual.names:
        return f"the columns are in another order: {actual.names}, not {expected.names}"
    return None
