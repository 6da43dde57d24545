"""The counts in an event are decoded as they were, and take no more bytes than they need."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrflight.shuffle.metadata.events import decode_counts, encode_counts


@given(st.lists(st.integers(0, 2**63 - 1)))
def test_decoded_counts_equal_the_encoded_ones(counts: list[int]) -> None:
    found = decode_counts(encode_counts(np.array(counts, np.int64)))
    assert (found.tolist(), found.dtype) == (counts, np.dtype(np.int64))


@pytest.mark.parametrize(
    ("largest", "width"),
    [(0, 1), (255, 1), (256, 2), (2**16, 4), (2**32 - 1, 4), (2**32, 8), (2**63 - 1, 8)],
)
def test_the_largest_count_decides_the_width(largest: int, width: int) -> None:
    assert len(encode_counts(np.array([0, largest, 0]))) == 1 + 3 * width
