"""The kernel in Rust (``kernel/src/lib.rs``); `mrflight.kernel_native` is its only caller."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from pyarrow import Buffer

from mrflight.kernel_native import Column

def hash_rows(columns: Sequence[Column], hashes: Buffer) -> None: ...
def partition_ids(columns: Sequence[Column], partitions: int, ids: Buffer) -> None: ...
def order_rows(ids: Column, rows: Buffer, offsets: Buffer) -> None: ...
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
