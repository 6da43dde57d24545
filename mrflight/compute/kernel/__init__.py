"""Where a row goes: the hash or rank of its key, and rows in the order of their partitions.

The work is done by `mrflight.compute.kernel.native` (Rust), or by
`mrflight.compute.kernel.reference` where that has not been built; both give the same
answers to the last bit, and `implementation` says which one is in use.

A key is one or more arrays of the same length, of types that `check_key_types`
lets through. Calls of the native kernel release the interpreter lock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mrflight.compute.key_types import has_canonical_bytes
from mrflight.errors import ColumnNotFoundError, KeyTypeError

implementation: Literal["rust", "python"] = (
    "rust" if find_spec("mrflight._kernel") is not None else "python"
)
if implementation == "rust":
    from mrflight.compute.kernel import native as _kernel
else:
    from mrflight.compute.kernel import reference as _kernel  # type: ignore[no-redef]

MAX_PLACED_PARTITIONS = 2**24
"""In one call, whose offsets then take 128 MiB. A shuffle has fewer: `mrflight.ids`."""

MAX_ROWS = 2**32 - 1
"""In one call; the rows are numbered in 32 bits."""


def hash_rows(columns: Sequence[pa.Array]) -> pa.UInt64Array:
    """The 64-bit hash of each row's key.

    Raises KeyTypeError for a column that cannot be hashed, ValueError for
    columns of different lengths or none, and for buffers that contradict
    each other.
    """
    _check_columns(columns)
    return _kernel.hash_rows(columns)


def partition_ids(columns: Sequence[pa.Array], partitions: int) -> pa.Int32Array:
    """The partition of each row, from 0. Raises as `hash_rows` does."""
    _check_columns(columns)
    _check_partitions(partitions)
    return _kernel.partition_ids(columns, partitions)


def order_by_partition(ids: pa.Int32Array, partitions: int) -> tuple[pa.UInt32Array, pa.Int64Array]:
    """The rows by partition, given the partition of each: ``(rows, offsets)``.

    Rows of one partition keep their order; those of partition ``p`` are
    ``rows[offsets[p]:offsets[p + 1]]``. Raises ValueError for an id that is
    null or no partition, naming its row.
    """
    _check_ids(ids, partitions)
    return _kernel.order_by_partition(ids, partitions)


def rank_bytes(column: pa.Array) -> pa.UInt32Array:
    """The place of each value among the distinct ones, in the order of their bytes, from 0.

    That of a null is 0. The column has strings or binary values, in no view or other encoding.
    Raises ValueError for buffers that contradict each other.
    """
    _check_arrays([column])
    return _kernel.rank_bytes(column)


def check_partition_ids(ids: pa.Int32Array, partitions: int) -> None:
    """Raise ValueError for an id that is null or no partition, naming its row."""
    _check_ids(ids, partitions)
    _kernel.check_ids(ids, partitions)


class Scatter(Protocol):
    """Rows of batches by partition, each appended to growing columns of its partition.

    Rows of one partition keep the order in which they came. Not for several
    threads.
    """

    @property
    def used_bytes(self) -> int:
        """The bytes of all buffers that rows are in, whether filled or not."""

    @property
    def free_bytes(self) -> int:
        """The bytes of the buffers that have come back and are kept for the rows to come.

        With `used_bytes`, they are at most the budget.
        """

    def release(self) -> None:
        """Keep no buffers before there are rows again."""

    def add(self, batch: pa.RecordBatch, ids: pa.Int32Array) -> None:
        """Append the rows of a batch, of which ``ids`` are the partitions.

        Raises ValueError, and appends nothing, for an id that is null or no
        partition, for buffers that contradict each other, and where a column
        of a partition would pass the 2^31 bytes that 32-bit offsets reach.
        """

    def measure(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """How many rows each partition has, and how many bytes they take."""

    def take(self, partition: int) -> pa.RecordBatch:
        """All rows of a partition, without a copy; it is empty afterwards.

        Their buffers come back when the last array over them is gone.
        """


def scatter(
    schema: pa.Schema, partitions: int, budget_bytes: int, expected_bytes: int
) -> Scatter | None:
    """An empty scatter of batches of ``schema``, which keeps no more than the budget for itself.

    A partition is expected to hold so many bytes when it is taken, and gets that room at once.

    None where the kernel in Rust has not been built, and for a schema without
    columns, with a nested column, or one in a layout that rows do not travel in
    (`mrflight.compute.layout`).
    """
    _check_partitions(partitions)
    return _kernel.scatter(schema, partitions, budget_bytes, expected_bytes)


class HashTable(Protocol):
    """The rows of one table by the hash of their key, to be met by those of another."""

    def pairs(
        self, hashes: pa.UInt64Array, most: int, *, only_first: bool = False
    ) -> Iterator[tuple[pa.UInt32Array, pa.UInt32Array]]:
        """Rows with one of ``hashes``, and the rows of the table that have the same.

        They come in the order of the former, then of the latter, of which there may be no more
        than the first: ``most`` pairs at a time, at the end fewer, and never none. A null meets
        nothing. Different keys may have one hash.
        """


def hash_table(hashes: pa.UInt64Array) -> HashTable:
    """Of the rows with these hashes, those that are null left out: 16 to 20 bytes for each row."""
    _check_arrays([hashes])
    return _kernel.hash_table(hashes)


def check_key_types(schema: pa.Schema, key: Sequence[str]) -> None:
    """Raise unless every column of ``key`` is in ``schema`` once, of a type that can be hashed.

    Raises ColumnNotFoundError or KeyTypeError.
    """
    for name in key:
        found = schema.get_all_field_indices(name)
        if not found:
            raise ColumnNotFoundError.among(name, schema.names, "the input")
        if len(found) > 1:
            raise ColumnNotFoundError(
                f"the input has {len(found)} columns {name!r}; rename them to use one as a key"
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


def _check_ids(ids: pa.Int32Array, partitions: int) -> None:
    _check_arrays([ids])
    if not pa.types.is_int32(ids.type):
        raise TypeError(f"partition ids are int32, not {ids.type}")
    _check_partitions(partitions)


def _check_type(type_: pa.DataType, column: str) -> None:
    if not has_canonical_bytes(type_):
        raise KeyTypeError(
            f"key column {column} is of type {type_}, which cannot be hashed; use a column of "
            "numbers, strings, binary, times or decimals, or derive one in the map"
        )


def _check_partitions(partitions: int) -> None:
    if not 1 <= partitions <= MAX_PLACED_PARTITIONS:
        raise ValueError(f"partitions must be 1 to {MAX_PLACED_PARTITIONS}, not {partitions}")
