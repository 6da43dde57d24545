"""Estimates the rows of a table before any are read: a pure function."""

from __future__ import annotations

from mrflight.config.input_spec import InputSpec
from mrflight.sources.base import Source

_COLUMN_BYTES = 4
"""What a value takes at least, as an average over columns: in a text, with a comma."""


def expected_rows(source: Source, section: InputSpec) -> int | None:
    """Return about how many rows an input has, rather too many; None if a function decides it.

    A condition leaves fewer rows.
    """
    schema = source.reader.schema
    if section.functions or not schema:
        return None
    if source.rows is not None:
        return source.rows
    if not source.size_bytes:
        return None  # a stream, whose size nobody knows
    return -(-source.rows_bytes // (_COLUMN_BYTES * len(schema)))
