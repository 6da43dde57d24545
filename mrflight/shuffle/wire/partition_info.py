"""The answers of a metadata server about committed map output.

`mrflight.ids` explains epochs, generations and versions.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from mrflight.ids import MapAttempt


class MapCommit(NamedTuple):
    """An attempt that counts for the partitions whose generation is in (since, until]."""

    source: MapAttempt
    since: int
    until: int

    def counts_for(self, generation: int) -> bool:
        return self.since < generation <= self.until


class PartitionInfo(msgspec.Struct, frozen=True):
    """The locations of a partition, and the rows and bytes that a reader is promised there."""

    partition: int
    locations: tuple[str, ...]
    epoch: int
    rows: int
    size_bytes: int
    generation: int = 0
