"""Rows or bytes of every partition: a journal keeps each in as few bytes as the largest takes.

As a list of numbers 10,000 of them take ten times as long to be read again, and every commit is
read once more when the journal is written anew.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]
"""Of each partition, in their order; none is negative."""


def packed(counts: Counts) -> bytes:
    """The width of a number in bytes, 1, 2, 4 or 8, and the numbers, little-endian."""
    width = np.min_scalar_type(counts.max(initial=0)).itemsize
    return bytes([width]) + counts.astype(f"<u{width}").tobytes()


def unpacked(record: bytes) -> Counts:
    """What was `packed`."""
    return np.frombuffer(record, f"<u{record[0]}", offset=1).astype(np.int64)
