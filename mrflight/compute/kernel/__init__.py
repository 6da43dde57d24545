"""Computes hashes, ranks and numbers of values, and orders rows by their partitions or values.

`mrflight.compute.kernel.native` (Rust) does the work, or `mrflight.compute.kernel.reference` if the
Rust module has not been built. Both return the same bytes, but for sums of `merge_moments` that are
rounded differently. `implementation` says which one is used.

A key is one or more arrays of the same length, of types that `check_key_types` accepts. Calls of
the native kernel release the interpreter lock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mrflight.compute.kernel_choice import kernel_language
from mrflight.compute.key_types import has_canonical_bytes
from mrflight.errors import ColumnNotFoundError, KeyTypeError

implementation = kernel_language()
if implementation == "rust":
    from mrflight.compute.kernel import native as _kernel
else:
    from mrflight.compute.kernel import reference as _kernel  # type: ignore[no-redef]

MAX_PLACED_PARTITIONS = 2**24
"""The most partitions in one call, whose offsets then take 128 MiB. A shuffle has fewer: see
`mrflight.ids`."""

MAX_ROWS = 2**32 - 1
"""The most rows in one call; rows are numbered in 32 bits."""


def hash_rows(columns: Sequence[pa.Array]) -> pa.UInt64Array:
    """Return the 64-bit hash of each row's key.

    Raises KeyTypeError for a column that cannot be hashed, and ValueError for columns of different
    lengths, for no columns, and for buffers that contradict each other.
    """
    _check_columns(columns)
    return _kernel.hash_rows(columns)


def partition_ids(columns: Sequence[pa.Array], partitions: int) -> pa.Int32Array:
    """Return the partition of each row, from 0. Raises as `hash_rows` does."""
    _check_columns(columns)
    _check_partitions(partitions)
    return _kernel.partition_ids(columns, partitions)


def order_by_partition(ids: pa.Int32Array, partitions: int) -> tuple[pa.UInt32Array, pa.Int64Array]:
    """Return ``(rows, offsets)``: the rows by partition, given the partition of each.

    Rows of one partition keep their order. The rows of partition ``p`` are
    ``rows[offsets[p]:offsets[p + 1]]``. There may be a partition for each row. Raises ValueError,
    which names the row, for an id that is null or not a partition.
    """
    _check_ids(ids, partitions)
    return _kernel.order_by_partition(ids, partitions)


def rank_bytes(column: pa.Array) -> pa.UInt32Array:
    """Return the rank of each value among the distinct ones in the order of their bytes, from 0.

    The rank of a null is 0. The column has strings or binary values, without views or encodings.
    Raises ValueError for buffers that contradict each other.
    """
    _check_arrays([column])
    return _kernel.rank_bytes(column)


def number_distinct(values: pa.UInt64Array) -> tuple[pa.Int32Array, pa.UInt32Array]:
    """Return ``(numbers, firsts)``: the number of each value among the distinct ones, from 0.

    They are numbered in the order in which they occur first, which is in the rows ``firsts``. There
    are no nulls. Raises ValueError for more than 2^31 distinct values.
    """
    _check_words(values)
    return _kernel.number_distinct(values)


def number_keys(columns: Sequence[pa.Array]) -> tuple[pa.Int32Array, pa.UInt32Array] | None:
    """Return ``(numbers, firsts)`` as `number_distinct` does, for the keys in these columns.

    Values are equal if their bytes are, so floats have one zero and one NaN. Returns None if two
    keys have the same hash, for other layouts than the canonical ones and nested columns, and if
    the kernel in Rust has not been built.
    """
    _check_columns(columns)
    return _kernel.number_keys(columns)


def sum_groups(values: pa.Array, numbers: pa.Int32Array, groups: int) -> pa.Array | None:
    """Return the sum of the values of each group, given the number of the group of each row.

    It is int64 for integers, and has 38 digits for decimals of 128 bits. There are no nulls, and no
    uint64. Returns None if a sum does not fit, and if the kernel in Rust has not been built. Raises
    ValueError for a number that is not one of a group.
    """
    _check_arrays([values, numbers])
    return _kernel.sum_groups(values, numbers, groups)


class RunningSums(Protocol):
    """The sums of the values of each key, to which batches are added one after the other.

    Only one thread may use it.
    """

    @property
    def groups(self) -> int:
        """The number of groups: one for each key, and more for a key with sums that do not fit."""

    @property
    def used_bytes(self) -> int:
        """The bytes that the groups take."""

    def add(self, batch: pa.RecordBatch) -> bool:
        """Add the rows of a batch. Return False, and add none, if there are nulls."""

    def take(self) -> pa.RecordBatch:
        """Return the groups by their first rows: the keys and the sums. Forget them."""


def running_sums(schema: pa.Schema) -> RunningSums | None:
    """Return sums without groups for batches of ``schema``, whose first column is the key.

    The type of a column is the type of its sums. If a sum would not fit, another group of the same
    key is begun. Returns None if the kernel in Rust has not been built, for a key that is not an
    integer, a date or a time, and for columns that are not int32, int64 or decimals of 38 digits.
    """
    return _kernel.running_sums(schema)


def mark_repeated(values: pa.UInt64Array) -> tuple[pa.BooleanArray, int]:
    """Return whether other rows have the value of each row, and how many such rows there are.

    There are no nulls.
    """
    _check_words(values)
    return _kernel.mark_repeated(values)


def order_runs(
    values: pa.UInt64Array, rows: pa.Int64Array, offsets: pa.Int64Array
) -> pa.Int64Array:
    """Return the rows of each run in the order of their values, and equal ones by their numbers.

    The rows of run ``r`` are those from ``offsets[r]`` to ``offsets[r + 1]`` of ``rows``, before
    and after. There are no nulls. Raises ValueError for offsets that do not ascend from 0 to the
    last row, and for a row without a value.
    """
    _check_words(values)
    _check_arrays([rows, offsets])
    for each in (rows, offsets):
        if not pa.types.is_int64(each.type):
            raise TypeError(f"rows and offsets are int64, not {each.type}")
    return _kernel.order_runs(values, rows, offsets)


def merge_moments(
    means: pa.DoubleArray,
    counts: pa.DoubleArray | None,
    squares: pa.DoubleArray | None,
    numbers: pa.Int32Array,
    groups: int,
) -> pa.DoubleArray:
    """Return the mean, the count and the squares of each group, one after the other.

    Squares are sums of squared differences from the mean. Each row has the moments of a part of the
    group with the number in ``numbers``, or a single value if there are no counts and squares.
    There are no nulls. Raises ValueError, which names the row, for a number that is not one of a
    group. The two kernels may round sums differently.
    """
    parts = [each for each in (means, counts, squares) if each is not None]
    _check_arrays([*parts, numbers])
    if any(len(part) != len(numbers) for part in parts):
        raise ValueError(f"there are {len(numbers)} numbers, and {[*map(len, parts)]} moments")
    return _kernel.merge_moments(means, counts, squares, numbers, groups)


def merge_centroids(
    means: pa.DoubleArray,
    weights: pa.DoubleArray,
    bounds: pa.Int64Array,
    cuts: Sequence[float],
    max_unmerged: int,
) -> tuple[pa.DoubleArray, pa.Int64Array]:
    """Return ``(merged, counts)``: centroids of t-digests, merged, and how many each digest has.

    Those of digest ``d`` are the ones from ``bounds[d]`` to ``bounds[d + 1]``. Up to
    ``max_unmerged`` of them are returned as they are. More are sorted by their means. Those whose
    middles are between two ``cuts``, which are quantiles in ascending order, become one centroid,
    but the least and the greatest stay apart, and so do infinities and NaN. ``merged`` has the mean
    and the weight of one after the other. Weights are whole numbers, and there are no nulls. Raises
    ValueError for bounds that do not ascend from 0 to the last centroid.
    """
    _check_arrays([means, weights, bounds])
    if len(means) != len(weights):
        raise ValueError(f"there are {len(means)} means and {len(weights)} weights")
    return _kernel.merge_centroids(means, weights, bounds, cuts, max_unmerged)


def check_partition_ids(ids: pa.Int32Array, partitions: int) -> None:
    """Raise ValueError, which names the row, for an id that is null or not a partition."""
    _check_ids(ids, partitions)
    _kernel.check_ids(ids, partitions)


class Scatter(Protocol):
    """Rows of batches by partition, each appended to growing columns of its partition.

    Rows of one partition keep the order in which they came. Only one thread may use it.
    """

    @property
    def used_bytes(self) -> int:
        """The bytes of all buffers that hold rows, including the unused ends of the buffers."""

    @property
    def free_bytes(self) -> int:
        """The bytes of the returned buffers that are kept for later rows.

        Together with `used_bytes` they are at most the budget.
        """

    def release(self) -> None:
        """Free the buffers that are kept for later rows."""

    def add(self, batch: pa.RecordBatch, ids: pa.Int32Array) -> None:
        """Append the rows of a batch, whose partitions are ``ids``.

        Raises ValueError and appends nothing for an id that is null or not a partition, for buffers
        that contradict each other, and if a column of a partition would pass the 2^31 bytes that
        32-bit offsets reach.
        """

    def measure(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the rows of each partition, and the bytes that they take."""

    def take(self, partition: int) -> pa.RecordBatch:
        """Return all rows of a partition without a copy, and leave it empty.

        The buffers come back when the last array over them is gone.
        """


def scatter(
    schema: pa.Schema, partitions: int, budget_bytes: int, expected_bytes: int
) -> Scatter | None:
    """Return an empty scatter for batches of ``schema``, which keeps at most the budget.

    A partition gets room for ``expected_bytes`` at once, as it is expected to hold so many when it
    is taken.

    Returns None if the kernel in Rust has not been built, and for a schema without columns, with a
    nested column, or with a layout other than the canonical one (`mrflight.compute.layout`).
    """
    _check_partitions(partitions)
    return _kernel.scatter(schema, partitions, budget_bytes, expected_bytes)


class HashTable(Protocol):
    """The rows of one table by the hashes of their keys, to be probed by rows of another table."""

    def pairs(
        self, hashes: pa.UInt64Array, max_pairs: int, *, only_first: bool = False
    ) -> Iterator[tuple[pa.UInt32Array, pa.UInt32Array]]:
        """Yield pairs of a row with one of ``hashes`` and a row of the table with the same hash.

        The pairs come in the order of ``hashes``, then of the table. ``only_first`` yields only the
        first row of the table for each hash. Each item has ``max_pairs`` pairs; the last one may
        have fewer, but has at least one. A null matches nothing. Different keys may have the same
        hash.
        """


def hash_table(hashes: pa.UInt64Array) -> HashTable:
    """Return a table of the rows with these hashes without nulls. It takes 16 to 20 bytes a row."""
    _check_arrays([hashes])
    return _kernel.HashTable(hashes)


def check_key_types(schema: pa.Schema, key: Sequence[str], rows: str = "the input") -> None:
    """Raise unless every column of ``key`` is in ``schema`` once, with a type that can be hashed.

    Raises ColumnNotFoundError or KeyTypeError, whose messages call the rows ``rows``.
    """
    for name in key:
        found = schema.get_all_field_indices(name)
        if not found:
            raise ColumnNotFoundError.among(name, schema.names, rows)
        if len(found) > 1:
            raise ColumnNotFoundError(
                f"{rows} has {len(found)} columns {name!r}; rename them to use one as a key"
            )
        _check_type(schema.field(found[0]).type, repr(name))


def _check_columns(columns: Sequence[pa.Array]) -> None:
    if not columns:
        raise ValueError("a key needs at least one column; there is none")
    _check_arrays(columns)
    for number, column in enumerate(columns):
        _check_type(column.type, str(number))
        if len(column) != len(columns[0]):
            raise ValueError(
                f"key columns differ in length: column 0 has {len(columns[0])} rows, "
                f"column {number} has {len(column)}"
            )


def _check_arrays(arrays: Sequence[pa.Array]) -> None:
    for array in arrays:
        if not isinstance(array, pa.Array):
            raise TypeError(f"the kernel takes a batch's pyarrow arrays, not {type(array)}")
        if len(array) > MAX_ROWS:
            raise ValueError(f"{len(array)} rows are too many for one call; split the batch")


def _check_words(values: pa.UInt64Array) -> None:
    _check_arrays([values])
    if not pa.types.is_uint64(values.type) or values.null_count:
        raise TypeError(f"values are uint64 without nulls, not {values.type}")


def _check_ids(ids: pa.Int32Array, partitions: int) -> None:
    _check_arrays([ids])
    if not pa.types.is_int32(ids.type):
        raise TypeError(f"partition ids are int32, not {ids.type}")
    _check_partitions(partitions, max(MAX_PLACED_PARTITIONS, len(ids)))


def _check_type(type_: pa.DataType, column: str) -> None:
    if not has_canonical_bytes(type_):
        raise KeyTypeError(
            f"key column {column} is of type {type_}, which cannot be hashed; use a column of "
            "numbers, strings, binary, times or decimals, or derive one in the map"
        )


def _check_partitions(partitions: int, most: int = MAX_PLACED_PARTITIONS) -> None:
    if not 1 <= partitions <= most:
        raise ValueError(f"partitions must be 1 to {most}, not {partitions}")
