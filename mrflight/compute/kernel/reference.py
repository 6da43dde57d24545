"""The kernel in Python, which defines the hash and the partition of a row.

A row's partition follows from its key alone, whatever client sent it and whatever its Arrow layout
is, so rows with equal keys are in one partition:

- A value has canonical bytes (`_canonical`). Its hash is the 64-bit XXH3 of these bytes with seed
0.
  A null's hash is `NULL_HASH`, in columns of every type.
- A row's hash is the hash of its key column. For several columns, it is the XXH3 of the column
  hashes, concatenated as 8 little-endian bytes each.
- A row's partition is ``hash * partitions >> 64``, of the 128-bit product.

`mrflight.compute.kernel` uses this module if the kernel in Rust has not been built, and the tests
compare the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types
from xxhash import xxh3_64_intdigest

from mrflight.compute import arrow_compute as pc

NULL_HASH = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio."""

_CANONICAL_NAN = np.int64(0x7FF8000000000000)

_UInt64s = npt.NDArray[np.uint64]
_Int64s = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]


def hash_rows(columns: Sequence[pa.Array]) -> pa.UInt64Array:
    return pa.array(_hash_rows(columns))


def partition_ids(columns: Sequence[pa.Array], partitions: int) -> pa.Int32Array:
    return pa.array(_partition_ids(columns, partitions).astype(np.int32))


def order_by_partition(ids: pa.Int32Array, partitions: int) -> tuple[pa.UInt32Array, pa.Int64Array]:
    check_ids(ids, partitions)
    return _order(ids.to_numpy().astype(np.int64), partitions)


def rank_bytes(column: pa.Array) -> pa.UInt32Array:
    encoded = _validate(_canonical(column)).dictionary_encode()
    ranks = np.empty(len(encoded.dictionary), np.uint32)
    ranks[pc.array_sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(ranks))
    ranked = np.zeros(len(column), np.uint32)
    ranked[column.is_valid().to_numpy(zero_copy_only=False)] = ranks[
        encoded.indices.drop_null().to_numpy()
    ]
    return pa.array(ranked)


def number_distinct(values: pa.UInt64Array) -> tuple[pa.Int32Array, pa.UInt32Array]:
    _, firsts, found = np.unique(values.to_numpy(), return_index=True, return_inverse=True)
    order = np.argsort(firsts)
    numbers = np.empty(len(order), np.int32)
    numbers[order] = np.arange(len(order))
    return pa.array(numbers[found]), pa.array(firsts[order].astype(np.uint32))


def number_keys(columns: Sequence[pa.Array]) -> None:
    return None  # Acero groups faster than Python


def sum_groups(values: pa.Array, numbers: pa.Int32Array, groups: int) -> None:
    return None


def running_sums(schema: pa.Schema) -> None:
    return None


def mark_repeated(values: pa.UInt64Array) -> tuple[pa.BooleanArray, int]:
    _, found, counts = np.unique(values.to_numpy(), return_inverse=True, return_counts=True)
    marks = counts[found] > 1
    return pa.array(marks, pa.bool_()), int(marks.sum())


def order_runs(
    values: pa.UInt64Array, rows: pa.Int64Array, offsets: pa.Int64Array
) -> pa.Int64Array:
    bounds, words, places = (each.to_numpy() for each in (offsets, values, rows))
    lengths = np.diff(bounds)
    if not len(bounds) or bounds[0] or bounds[-1] != len(rows) or (lengths < 0).any():
        raise ValueError("a column is malformed: its runs do not ascend to its last row")
    if len(places) and (places.min() < 0 or places.max() >= len(words)):
        raise ValueError("a column is malformed: a row is outside its values")
    runs = np.repeat(np.arange(len(lengths)), lengths)
    return pa.array(places[np.lexsort([places, words[places], runs])])


def merge_moments(
    means: pa.DoubleArray,
    counts: pa.DoubleArray | None,
    squares: pa.DoubleArray | None,
    numbers: pa.Int32Array,
    groups: int,
) -> pa.DoubleArray:
    check_ids(numbers, groups)
    group, values = numbers.to_numpy(), means.to_numpy()
    weights = np.ones(len(values)) if counts is None else counts.to_numpy()
    known = np.zeros(len(values)) if squares is None else squares.to_numpy()
    first = np.zeros(groups)
    first[group[::-1]] = values[::-1]
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        count = np.bincount(group, weights, groups)
        mean = first + np.bincount(group, weights * (values - first[group]), groups) / count
        off = values - mean[group]
        spread = np.bincount(group, known + weights * off * off, groups).astype(np.float64)
        # The second sum would be 0, if the mean were not rounded.
        spread -= np.bincount(group, weights * off, groups) ** 2 / count
    return pa.array(np.stack([mean, count, np.maximum(spread, 0)], axis=1).ravel())


def merge_centroids(
    means: pa.DoubleArray,
    weights: pa.DoubleArray,
    bounds: pa.Int64Array,
    cuts: Sequence[float],
    max_unmerged: int,
) -> tuple[pa.DoubleArray, pa.Int64Array]:
    ends = bounds.to_numpy()
    if not len(ends) or ends[0] or ends[-1] != len(means) or (np.diff(ends) < 0).any():
        message = "its digests do not ascend to its last centroid"
        raise ValueError(f"a column is malformed: {message}")
    centroids = np.stack([means.to_numpy(), weights.to_numpy()], axis=1)
    digests = [centroids[start:end] for start, end in pairwise(ends)]
    merged = [
        digest if len(digest) <= max_unmerged else _merge(digest, np.asarray(cuts))
        for digest in digests
    ]
    counts = np.array([len(digest) for digest in merged], np.int64)
    return pa.array(np.concatenate([np.empty(0), *map(np.ravel, merged)])), pa.array(counts)


def _merge(digest: _Floats, cuts: _Floats) -> _Floats:
    """Return the merged centroids of one digest. Sums are added in order, as the kernel does."""
    means, weights = digest[np.argsort(digest[:, 0] + 0.0, kind="stable")].T
    until = np.cumsum(weights)
    begins = np.zeros(len(means) + 1, np.bool_)
    begins[np.searchsorted(until - weights / 2, cuts * until[-1])] = True
    begins[[1, len(means) - 1]] = True
    kinds = np.where(np.isnan(means), 2, np.where(np.isinf(means), np.sign(means), 0))
    starts = (begins[:-1] & (kinds == 0)) | (np.diff(kinds, prepend=np.nan) != 0)
    runs, first = np.cumsum(starts) - 1, np.flatnonzero(starts)
    last = np.append(first[1:], len(means)) - 1
    totals = np.bincount(runs, weights)
    mixed = np.bincount(runs, means * (weights / totals[runs]))
    is_alone = (first == last) | (kinds[first] != 0)
    mixed = np.where(is_alone, means[first], np.clip(mixed, means[first], means[last]))
    return np.stack([mixed, totals], axis=1)


def check_ids(ids: pa.Int32Array, partitions: int) -> None:
    if ids.null_count:
        row = int(np.argmax(ids.is_null().to_numpy(zero_copy_only=False)))
        raise ValueError(
            f"row {row} has no partition: its id is null; a partitioner must give every row one"
        )
    numbers = ids.to_numpy()
    wrong = (numbers < 0) | (numbers >= partitions)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"row {row} is placed in partition {numbers[row]}, which does not exist: "
            f"there are {partitions}, numbered from 0"
        )


class HashTable:
    """The rows of a table in the order of their hashes."""

    def __init__(self, hashes: pa.UInt64Array) -> None:
        there, values = _valid(hashes)
        order = np.argsort(values, kind="stable")
        self._hashes, self._rows = values[order], there[order].astype(np.uint32)

    def pairs(
        self, hashes: pa.UInt64Array, max_pairs: int, *, only_first: bool = False
    ) -> Iterator[tuple[pa.UInt32Array, pa.UInt32Array]]:
        there, values = _valid(hashes)
        first = np.searchsorted(self._hashes, values, side="left")
        counts = np.searchsorted(self._hashes, values, side="right") - first
        if only_first:
            counts = np.minimum(counts, 1)
        until = np.cumsum(counts)
        total = int(until[-1]) if len(until) else 0
        for start in range(0, total, max_pairs):
            numbers = np.arange(start, min(start + max_pairs, total))
            at = np.searchsorted(until, numbers, side="right")
            places = first[at] + numbers - (until[at] - counts[at])
            yield pa.array(there[at].astype(np.uint32)), pa.array(self._rows[places])


def _valid(hashes: pa.UInt64Array) -> tuple[_Int64s, _UInt64s]:
    """Return the rows that are not null, and their hashes."""
    there = np.flatnonzero(hashes.is_valid().to_numpy(zero_copy_only=False))
    return there, hashes.take(pa.array(there)).to_numpy()


def scatter(schema: pa.Schema, partitions: int, budget_bytes: int, expected_bytes: int) -> None:
    return None  # taking and slicing whole batches is as fast as Python gets


def _order(ids: _Int64s, partitions: int) -> tuple[pa.UInt32Array, pa.Int64Array]:
    rows = np.argsort(ids, kind="stable").astype(np.uint32)
    offsets = np.zeros(partitions + 1, np.int64)
    np.cumsum(np.bincount(ids, minlength=partitions), out=offsets[1:])
    return pa.array(rows), pa.array(offsets)


def _partition_ids(columns: Sequence[pa.Array], partitions: int) -> _Int64s:
    hashes = _hash_rows(columns)
    # NumPy has no 128-bit integers, so the high word of the product is made of the hash's two
    # halves.
    high, low = hashes >> np.uint64(32), hashes & np.uint64(0xFFFFFFFF)
    count = np.uint64(partitions)
    return ((high * count + (low * count >> np.uint64(32))) >> np.uint64(32)).astype(np.int64)


def _hash_rows(columns: Sequence[pa.Array]) -> _UInt64s:
    hashes = [_hash_column(column) for column in columns]
    if len(hashes) == 1:
        return hashes[0]
    joined = np.stack(hashes, axis=1).astype("<u8")
    return np.fromiter((xxh3_64_intdigest(row) for row in joined), np.uint64, len(joined))


def _hash_column(array: pa.Array) -> _UInt64s:
    """Return the hash of each value. Encoded columns are hashed by their values."""
    if isinstance(array, pa.ExtensionArray):
        return _hash_column(array.storage)
    if types.is_null(array.type):
        return np.full(len(array), NULL_HASH, np.uint64)
    if types.is_run_end_encoded(array.type):
        return _hash_column(array.values)[_runs(array)]
    if types.is_dictionary(array.type):
        return _gather(_hash_column(array.dictionary), array.indices)
    distinct = _validate(_canonical(array)).dictionary_encode()
    hashes = map(xxh3_64_intdigest, distinct.dictionary.to_pylist())
    return _gather(np.fromiter(hashes, np.uint64, len(distinct.dictionary)), distinct.indices)


def _validate(array: pa.Array) -> pa.Array:
    """Return the array; raise ValueError if its buffers contradict each other."""
    try:
        array.validate(full=True)
    except pa.ArrowException as error:
        raise ValueError(f"a column is malformed: {error}") from error
    return array


def _gather(hashes: _UInt64s, indices: pa.Array) -> _UInt64s:
    """Return ``hashes`` at ``indices``, some of which may be null."""
    places = indices.drop_null().to_numpy()
    if len(places) and (places.min() < 0 or places.max() >= len(hashes)):
        raise ValueError("a column is malformed: an index is outside its dictionary")
    gathered = np.full(len(indices), NULL_HASH, np.uint64)
    gathered[indices.is_valid().to_numpy(zero_copy_only=False)] = hashes[places]
    return gathered


def _runs(array: pa.RunEndEncodedArray) -> _Int64s:
    """Return the number of the run that each row is in."""
    ends = array.run_ends.to_numpy()
    rows = array.offset + np.arange(len(array))
    if len(rows) and not ((np.diff(ends, prepend=0) > 0).all() and rows[-1] < ends[-1]):
        raise ValueError("a column is malformed: its run ends do not ascend to its last row")
    return np.searchsorted(ends, rows, side="right")


def _canonical(array: pa.Array) -> pa.Array:
    """Return the canonical bytes of each value, in an array of a binary type."""
    type_ = array.type
    if types.is_boolean(type_):
        return pc.if_else(array, pa.scalar(b"\x01"), pa.scalar(b"\x00"))
    if types.is_floating(type_):
        return _float_bits(array.cast(pa.float64())).view(pa.binary(8))
    if types.is_decimal(type_):
        return _unscaled_values(array)
    if types.is_integer(type_) or types.is_temporal(type_):
        return _integers(array).view(pa.binary(8))
    if types.is_string(type_):
        return array.view(pa.binary())
    if types.is_large_string(type_):
        return array.view(pa.large_binary())
    if types.is_string_view(type_):
        return array.view(pa.binary_view())
    return array


def _integers(array: pa.Array) -> pa.Array:
    """Return integers and times as 64 bits: extended by their sign, and uint64 unchanged."""
    if types.is_temporal(array.type):
        array = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    return array.view(pa.int64()) if types.is_uint64(array.type) else array.cast(pa.int64())


def _unscaled_values(array: pa.Array) -> pa.Array:
    """Return the 16 low bytes of each decimal's integer, extended by its sign if it has fewer."""
    if types.is_decimal256(array.type):
        return pc.binary_slice(array.view(pa.binary(32)), 0, 16)
    if types.is_decimal128(array.type):
        return array.view(pa.binary(16))
    low = array.view(pa.int32() if types.is_decimal32(array.type) else pa.int64()).cast(pa.int64())
    high = pc.if_else(pc.less(low, 0), -1, 0)
    words = [word.view(pa.binary(8)).cast(pa.binary()) for word in (low, high)]
    return pc.binary_join_element_wise(*words, b"")


def _float_bits(array: pa.DoubleArray) -> pa.Int64Array:
    """Return the bits of each float, with one zero and one NaN."""
    values = array.to_numpy(zero_copy_only=False)
    with np.errstate(invalid="ignore"):  # any NaN will do
        positive_zeros = values + 0.0
    bits = np.where(np.isnan(values), _CANONICAL_NAN, positive_zeros.view(np.int64))
    return pa.array(bits, mask=array.is_null().to_numpy(zero_copy_only=False))
