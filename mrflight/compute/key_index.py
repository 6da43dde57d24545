"""Finds the rows that have one of many keys: by a sorted array of hashes, then by the values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mrflight.compute import arrow_compute as pc
from mrflight.compute import kernel
from mrflight.compute.types import comparable

_FILTER_SLOTS_PER_KEY = 8
"""Bytes of the filter for each key. At most one in eight of the rows without a key passes it."""


class KeyIndex:
    """An index of keys without nulls, in columns of the table's types.

    It takes about 24 bytes per key besides the keys. Values are equal if their canonical bytes are
    equal, so -0.0 equals 0.0 and all NaNs are equal. A row with a null has no key.
    """

    def __init__(self, keys: pa.Table) -> None:
        """``keys`` must have rows."""
        hashes = _hashes(keys.to_batches())
        order = np.argsort(hashes)
        self._hashes = hashes[order]
        self._keys = keys
        self._order = order
        bits = max(8, (_FILTER_SLOTS_PER_KEY * len(order) - 1).bit_length() - 1)
        self._shift = np.uint64(64 - bits)
        self._filter = np.zeros(1 << bits, np.bool_)
        self._filter[self._hashes >> self._shift] = True

    def matches(self, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """Return the numbers of the rows that have one of the keys; ``rows`` has their columns."""
        if not rows.num_rows:
            return np.empty(0, np.int64)
        hashes = _hashes([rows])
        left = np.flatnonzero(self._filter[hashes >> self._shift])
        positions = np.searchsorted(self._hashes, hashes[left])
        found: list[npt.NDArray[np.int64]] = []
        while len(left):  # more than once only if different keys have one hash
            inside = positions < len(self._hashes)
            left, positions = left[inside], positions[inside]
            alike = self._hashes[positions] == hashes[left]
            left, positions = left[alike], positions[alike]
            equal = self._equal(rows, left, positions)
            found.append(left[equal])
            left, positions = left[~equal], positions[~equal] + 1
        return np.sort(np.concatenate(found)) if found else np.empty(0, np.int64)

    def _equal(
        self, rows: pa.RecordBatch, left: npt.NDArray[np.int64], positions: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        equal = np.ones(len(left), np.bool_)
        theirs = pa.array(self._order[positions])
        for one, keys in zip(rows.columns, self._keys.columns, strict=True):
            ours = comparable(pa.chunked_array([one.take(pa.array(left))]))
            known = comparable(keys.take(theirs))
            same = pc.equal(ours, known)
            if pa.types.is_floating(ours.type):
                same = pc.or_(same, pc.and_(pc.is_nan(ours), pc.is_nan(known)))
            equal &= np.asarray(pc.fill_null(same, False))
        return equal


def _hashes(batches: list[pa.RecordBatch]) -> npt.NDArray[np.uint64]:
    return np.concatenate([kernel.hash_rows(batch.columns).to_numpy() for batch in batches])
