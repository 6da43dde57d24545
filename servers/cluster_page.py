"""What the page of a standing cluster shows: its data servers, its shuffles, and what was lost."""

from __future__ import annotations

import time

import numpy as np

from mrflight.page.contract import (
    NO_ATTEMPTS,
    NO_MATRIX,
    AttemptColumns,
    PageParts,
    PageState,
    ProcessRow,
    ShuffleSizes,
)
from mrflight.shuffle.metadata.cluster_overview import ClusterOverview, PartitionSizes
from mrflight.shuffle.metadata.events import Counts
from mrflight.shuffle.metadata.metadata_totals import MetadataTotals
from mrflight.shuffle.wire.cluster_status import ServerStatus
from mrflight.units import format_count

from .cluster_log import ClusterLog

MAX_SHUFFLES = 50
"""More than that nobody looks at one by one; the figures count all of them."""
MAX_BARS = 2_000
_LOOK_EVERY_S = 1.0
"""What data servers hold changes with their heartbeats, which are no events."""


class ClusterPage:
    """The source of the page of a metadata server."""

    is_over = False

    def __init__(self, overview: ClusterOverview, totals: MetadataTotals, log: ClusterLog) -> None:
        self._overview = overview
        self._totals = totals
        self._log = log

    def state(self) -> PageState:
        servers, shuffles = self._overview.servers(), self._overview.shuffles()
        return PageState(
            kind="cluster",
            title="mrflight cluster",
            subtitle=format_count(len(servers), "data server"),
            state="running",
            error="",
            elapsed=round(time.time() - self._log.began, 3),
            ended=None,
            figures={
                "servers": len(servers),
                "left": self._totals.servers_left,
                "shuffles": len(shuffles),
                "partitions": sum(shuffle.partitions for shuffle in shuffles),
                "maps": self._totals.maps_committed,
                "rows": sum(shuffle.rows for shuffle in shuffles),
                "bytes": sum(shuffle.size_bytes for shuffle in shuffles),
                "lost": self._totals.partitions_lost,
            },
            stages=[],
            workers=[],
            running=[],
            attempts_ended=0,
            incidents_all=self._log.count,
        )

    def parts(self) -> PageParts:
        sizes = self._overview.partition_sizes(MAX_SHUFFLES)
        return PageParts(
            [],
            [_process(server) for server in self._overview.servers()],
            self._log.rows(),
            [_shuffle(each) for each in sizes],
            NO_MATRIX,
        )

    def attempts(self, since: int, most: int) -> AttemptColumns:
        return NO_ATTEMPTS

    def wait(self, position: int, timeout_s: float) -> int:
        return self._log.wait(position, min(timeout_s, _LOOK_EVERY_S))


def _process(server: ServerStatus) -> ProcessRow:
    use = server.use
    address = server.location.partition("://")[2]
    return ProcessRow(
        address, use.held_bytes, use.budget_bytes, 0, 0, use.spilled_bytes, gone=False
    )


def _shuffle(sizes: PartitionSizes) -> ShuffleSizes:
    count = len(sizes.size_bytes)
    width = -(-count // MAX_BARS)
    held = np.sort(sizes.size_bytes[sizes.rows > 0])
    largest = int(sizes.size_bytes.argmax())
    return ShuffleSizes(
        sizes.id,
        f"{sizes.job}: {sizes.id}" if sizes.job else sizes.id,
        count,
        width,
        _summed(sizes.size_bytes, width),
        _summed(sizes.rows, width),
        float(held[len(held) // 2]) if len(held) else 0.0,
        (largest, int(sizes.size_bytes[largest])),
    )


def _summed(counts: Counts, width: int) -> list[int]:
    starts = np.arange(0, len(counts), width)
    summed: list[int] = np.add.reduceat(counts, starts).tolist()
    return summed
