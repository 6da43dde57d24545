"""Mapped batches of which all have the columns of the first."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from mrflight.compute.layout import canonical_schema, to_canonical
from mrflight.compute.schemas import describe_difference
from mrflight.errors import SchemaMismatchError


def check_same_columns(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches as they are; SchemaMismatchError for one whose columns differ from the first's.

    Layouts may differ.
    """
    first: pa.Schema | None = None
    for number, batch in enumerate(batches):
        schema = canonical_schema(batch.schema)
        first = first or schema
        if difference := describe_difference(first, schema):
            raise SchemaMismatchError(
                f"mapped batch {number} does not agree with the first: {difference}"
            )
        yield batch


def to_same_layout(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches as `check_same_columns` gives them, in the layout that rows travel in."""
    for batch in check_same_columns(batches):
        yield to_canonical(batch, canonical_schema(batch.schema))
