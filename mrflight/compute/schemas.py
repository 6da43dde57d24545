"""Comparing schemas and saying how they differ; rows of one that has none."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa


def describe_difference(expected: pa.Schema, actual: pa.Schema) -> str | None:
    """How ``actual`` differs from ``expected`` in names, order or types; None where it does not.

    Whether a column may be null, and metadata, make no difference.
    """
    if expected.names == actual.names:
        for before, now in zip(expected, actual, strict=True):
            if before.type != now.type:
                return f"column {before.name!r} is {now.type}, not {before.type}"
        return None
    if missing := list((Counter(expected.names) - Counter(actual.names)).elements()):
        return f"column {missing[0]!r} is missing"
    if new := list((Counter(actual.names) - Counter(expected.names)).elements()):
        return f"column {new[0]!r} is new"
    return f"the columns are in another order: {actual.names}, not {expected.names}"


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """No rows of ``schema``."""
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
