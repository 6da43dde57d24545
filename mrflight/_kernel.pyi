"""The kernel in Rust (``kernel/src/lib.rs``), called by `mrflight.compute.kernel.native` only."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from pyarrow import Buffer

from mrflight.compute.kernel.native import Column

def hash_rows(columns: Sequence[Column], hashes: Buffer) -> None: ...
def partition_ids(columns: Sequence[Column], partitions: int, ids: Buffer) -> None: ...
def order_rows(ids: Column, rows: Buffer, offsets: Buffer) -> None: ...
def rank_bytes(column: Column, ranks: Buffer) -> None: ...
def number_distinct(column: Column, numbers: Buffer, firsts: Buffer) -> int: ...
def order_runs(values: Column, rows: Column, offsets: Column, ordered: Buffer) -> None: ...
def merge_centroids(
    means: Column,
    weights: Column,
    bounds: Column,
    cuts: Sequence[float],
    max_unmerged: int,
    merged: Buffer,
    counts: Buffer,
) -> int: ...
def merge_moments(
    means: Column,
    counts: Column | None,
    squares: Column | None,
    numbers: Column,
    merged: Buffer,
) -> None: ...
def check_ids(ids: Column, partitions: int) -> None: ...

class Bytes:
    """Has the buffer protocol, read-only."""

class HashTable:
    def __init__(self, hashes: Column) -> None: ...
    def pairs(
        self,
        hashes: Column,
        only_first: bool,
        place: tuple[int, int],
        probes: Buffer,
        rows: Buffer,
    ) -> tuple[int, tuple[int, int]]: ...

class Scatter:
    def __init__(
        self,
        layouts: Sequence[tuple[str, int]],
        partitions: int,
        budget_bytes: int,
        expected_bytes: int,
    ) -> None: ...
    @property
    def used_bytes(self) -> int: ...
    @property
    def free_bytes(self) -> int: ...
    def release(self) -> None: ...
    def add(self, columns: Sequence[Column], ids: Column) -> None: ...
    def measure(self, rows: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> None: ...
    def take(self, partition: int) -> tuple[int, list[list[Bytes | None]]]: ...
