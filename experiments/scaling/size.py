"""The size of a job, and what each of its maps sends to each partition.

The numbers are invented, and the same in every run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

ROW_BYTES = 100
_BLOCK_BYTES = 256
"""The bytes of each block in addition to its rows."""
_PATTERN = 101

SCHEMA = pa.schema(
    [
        ("url", pa.string()),
        ("country", pa.string()),
        ("clicks", pa.int64()),
        ("spent", pa.float64()),
    ]
)

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Size:
    """The size of one job, and of the cluster that it runs on."""

    maps: int
    partitions: int
    servers: int = 200
    workers: int = 1600
    map_bytes: int = 10**9
    """The bytes that a map reads and sends: 10 TB for 10,000 maps."""
    loses: bool = False
    """True if a data server is lost after the reduces have begun."""

    @property
    def name(self) -> str:
        lost = ", a data server lost" if self.loses else ""
        return f"{self.maps:,} x {self.partitions:,}{lost}"

    def sent(self, map_id: int) -> tuple[Counts, Counts]:
        """Return the rows and bytes of a map by partition."""
        usual = self.map_bytes // ROW_BYTES // self.partitions
        rows = usual * (950 + _pattern(self.partitions, map_id % _PATTERN)) // 1000
        return rows, rows * ROW_BYTES + _BLOCK_BYTES

    def reported(self, map_id: int) -> tuple[list[int], list[int]]:
        """Return the same as a commit reports it."""
        return _reported(self, map_id % _PATTERN)

    def all_sent(self) -> tuple[Counts, Counts]:
        """Return the rows and bytes that all maps send to each partition."""
        of_one = [self.sent(map_id) for map_id in range(min(self.maps, _PATTERN))]
        times = np.bincount(np.arange(self.maps) % _PATTERN)
        rows, sizes = (
            sum(n * counts for n, counts in zip(times, side, strict=True))
            for side in zip(*of_one, strict=True)
        )
        return rows, sizes


@lru_cache(_PATTERN)
def _reported(size: Size, offset: int) -> tuple[list[int], list[int]]:
    rows, sizes = size.sent(offset)
    return rows.tolist(), sizes.tolist()


@lru_cache(_PATTERN)
def _pattern(partitions: int, offset: int) -> Counts:
    """Return numbers from 0 to 100 that differ between neighbours and between maps."""
    return (np.arange(partitions, dtype=np.int64) * 31 + offset * 17) % _PATTERN
