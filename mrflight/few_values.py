"""Columns of few, short strings, which a dictionary makes small whatever their rows are."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

FEW = 256
"""That one byte tells apart."""

SHORT_BYTES = 32
"""A row's byte stands for no more than that, so that nothing becomes much larger once decoded."""


def are_few(dictionary: pa.Array) -> bool:
    """Whether a dictionary's values are strings, short, none of them null, and few."""
    if not pa.types.is_string(dictionary.type) or dictionary.null_count or len(dictionary) > FEW:
        return False
    longest = pc.max(pc.binary_length(dictionary)).as_py()
    return longest is None or longest <= SHORT_BYTES


def has_few(column: pa.Array) -> bool:
    """Whether a column is a dictionary of few, short strings."""
    return isinstance(column, pa.DictionaryArray) and are_few(column.dictionary)
