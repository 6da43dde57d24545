"""Runtime filters: rows of one side of a join are sent only if the other side may have their keys.

The maps of the first side note the keys that they send, in Bloom filters (Bloom, "Space/time
trade-offs in hash coding with allowable errors", 1970), of which the driver makes one. The maps of
the second side test their rows against it. It may let rows through that match nothing, and never
holds back one that matches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec.structs import replace

from mrflight.compute import kernel
from mrflight.compute.arrays import to_arrow
from mrflight.compute.layout import decode_dictionaries
from mrflight.compute.value_ranges import Range, ScanBounds, has_bounds, united, value_range

_BITS_PER_KEY = 12
_MIN_BITS, _MAX_BITS = 2**16, 2**25
_UNKNOWN_ROWS = 2**18
"""The rows that are assumed of a side of which nothing is known."""

_MAX_NOTES_BYTES = 64 * 2**20
"""What the filters of all maps of a side take together in the driver, before they are one."""

_MAX_PASSED = 0.7
"""A filter that lets more rows through than this, of those that match nothing, costs more than it
saves."""


class KeyFilter(msgspec.Struct, frozen=True):
    """A Bloom filter of keys, with two bits for each."""

    bits: bytes
    ranges: tuple[Range, ...] = ()
    """Those of each column of the keys, or none if they are not needed."""

    @classmethod
    def united(cls, filters: Sequence[KeyFilter]) -> KeyFilter | None:
        """Return the filter of all keys of several of one size; None if it would be of no use."""
        if not filters:
            return None
        marks = np.bitwise_or.reduce([np.frombuffer(each.bits, np.uint8) for each in filters])
        filled = float(np.bitwise_count(marks).sum()) / (8 * len(marks))
        if filled**2 > _MAX_PASSED:
            return None
        known = [each.ranges for each in filters if each.ranges]  # a map without batches has none
        columns = zip(*known, strict=True)
        ranges = (united(column) for column in columns)
        return cls(marks.tobytes(), tuple(ranges))

    def test(self, hashes: pa.UInt64Array) -> pa.BooleanArray:
        """Return false for each hash of a key that was not noted."""
        marks = np.frombuffer(self.bits, np.uint8)
        found = np.ones(len(hashes), np.uint8)
        for places in _places(hashes, len(marks)):
            found &= marks[places >> 3] >> (places & 7).astype(np.uint8)
        return to_arrow(found.astype(bool))


ScannedKeys = tuple[tuple[int, bytes] | None, ...]
"""The columns of scans that the columns of a key are, for those that are one: the position of the
scan among those of the fragment that makes the rows, and the expression of the column."""


class RuntimeFilter(msgspec.Struct, frozen=True):
    """What the maps of one side of a join do: they note keys, or test them, or both."""

    columns: tuple[str, ...]
    """The key. Null has a hash as every other value."""
    noted_bits: int = 0
    """The bits of the filter of the keys that are noted; 0 if none is made."""
    tested: KeyFilter | None = None
    scanned: ScannedKeys = ()

    def noted_by(self, maps: int) -> RuntimeFilter:
        """Return the filter for so many maps, whose notes the driver has at the same time."""
        most = max(8, 8 * _MAX_NOTES_BYTES // max(1, maps))
        return replace(self, noted_bits=min(self.noted_bits, 1 << most.bit_length() - 1))

    def bounds(self, keys: KeyFilter) -> tuple[ScanBounds, ...]:
        """Return what is needed of the scans, if only these keys are."""
        known = zip(self.scanned, keys.ranges, strict=False)
        return tuple(
            ScanBounds(*column, low, high)
            for column, (low, high) in known
            if column is not None and low is not None and high is not None
        )

    def keep(self, batches: Iterable[pa.RecordBatch], noted: NotedKeys) -> Iterator[pa.RecordBatch]:
        """Yield the rows that may match, and note their keys."""
        for batch in batches:
            hashes = self._hashes(batch)
            kept = batch
            if self.tested is not None:
                may_match = self.tested.test(hashes)
                kept, hashes = batch.filter(may_match), hashes.filter(may_match)
            noted.add(hashes, [kept[column] for column in self.columns])
            yield kept

    def _hashes(self, batch: pa.RecordBatch) -> pa.UInt64Array:
        key = decode_dictionaries(batch.select(self.columns))
        return kernel.hash_rows(key.columns)


class NotedKeys:
    """The keys that one map notes."""

    def __init__(self, bits: int) -> None:
        self._marks: npt.NDArray[np.uint8] = np.zeros(bits // 8, np.uint8)
        self._ranges: list[list[Range]] = []

    def add(self, hashes: pa.UInt64Array, columns: Sequence[pa.Array]) -> None:
        """Note the keys of these hashes, in these columns."""
        if not len(self._marks):
            return
        self._ranges.append(
            [value_range([each]) if has_bounds(each.type) else (None, None) for each in columns]
        )
        for places in _places(hashes, len(self._marks)):
            bits = np.left_shift(1, places & 7).astype(np.uint8)
            np.bitwise_or.at(self._marks, places >> 3, bits)

    def filter(self) -> KeyFilter | None:
        """Return the filter of the noted keys; None if none are to be noted."""
        if not len(self._marks):
            return None
        columns = zip(*self._ranges, strict=True)
        ranges = (united(column) for column in columns)
        return KeyFilter(self._marks.tobytes(), tuple(ranges))


def filter_bits(expected_rows: int | None) -> int:
    """Return the bits of a filter for so many keys: a power of two."""
    wanted = _BITS_PER_KEY * (_UNKNOWN_ROWS if expected_rows is None else expected_rows)
    return min(_MAX_BITS, max(_MIN_BITS, 1 << (wanted - 1).bit_length() if wanted else 0))


def _places(hashes: pa.UInt64Array, size: int) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the two bits of each hash, among those of ``size`` bytes."""
    values = hashes.to_numpy()
    for shift in (0, 32):
        yield ((values >> np.uint64(shift)) & np.uint64(8 * size - 1)).astype(np.int64)
