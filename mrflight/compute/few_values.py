"""Columns of few, short strings, which a dictionary makes small whatever their rows are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from mrflight.compute.numpy_arrays import values_in

FEW = 256
"""That one byte tells apart."""

SHORT_BYTES = 32
"""A row's byte stands for no more than that, so that nothing becomes much larger once decoded."""


def is_short_dictionary(dictionary: pa.Array) -> bool:
    """Whether a dictionary's values are strings, short, none of them null, and few."""
    if not pa.types.is_string(dictionary.type) or dictionary.null_count or len(dictionary) > FEW:
        return False
    if not len(dictionary):
        return True
    ends = values_in(dictionary.buffers()[1], "<i4", len(dictionary) + 1, dictionary.offset)
    return all(np.diff(ends) <= SHORT_BYTES)


def is_low_cardinality(column: pa.Array) -> bool:
    """Whether a column is a dictionary of few, short strings."""
    return isinstance(column, pa.DictionaryArray) and is_short_dictionary(column.dictionary)
