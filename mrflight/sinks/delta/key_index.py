"""Which rows have one of some keys: by a sorted array of hashes, and then by the values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mrflight.compute import kernel
from mrflight.compute.types import comparable

_SIEVE_PER_KEY = 8
"""Bytes of the sieve for each key: of other rows at most one in eight goes through."""


class KeyIndex:
    """Of keys without nulls, in columns of the table's types; holds about 24 bytes a key more.

    Equal are values with equal canonical bytes: -0.0 and 0.0, and all NaNs. Null is no key.
    """

    def __init__(self, keys: pa.Table) -> None:
        """``keys`` has rows."""
        hashes = _hashes(keys.to_batches())
        order = np.argsort(hashes)
        self._hashes = hashes[order]
        self._keys = keys
        self._order = order
        bits = max(8, (_SIEVE_PER_KEY * len(order) - 1).bit_length() - 1)
        self._shift = np.uint64(64 - bits)
        self._sieve = np.zeros(1 << bits, np.bool_)
        self._sieve[self._hashes >> self._shift] = True

    def matches(self, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """The numbers of the rows that have one of the keys; ``rows`` has the keys' columns."""
        if not rows.num_rows:
            return np.empty(0, np.int64)
        hashes = _hashes([rows])
        left = np.flatnonzero(self._sieve[hashes >> self._shift])
        places = np.searchsorted(self._hashes, hashes[left])
        found: list[npt.NDArray[np.int64]] = []
        while len(left):  # more than once only where different keys have one hash
            inside = places < len(self._hashes)
            left, places = left[inside], places[inside]
            alike = self._hashes[places] == hashes[left]
            left, places = left[alike], places[alike]
            equal = self._equal(rows, left, places)
            found.append(left[equal])
            left, places = left[~equal], places[~equal] + 1
        return np.sort(np.concatenate(found)) if found else np.empty(0, np.int64)

    def _equal(
        self, rows: pa.RecordBatch, left: npt.NDArray[np.int64], places: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        import pyarrow.compute as pc

        equal = np.ones(len(left), np.bool_)
        theirs = pa.array(self._order[places])
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
