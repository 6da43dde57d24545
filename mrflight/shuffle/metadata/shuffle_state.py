"""The state of one shuffle: its placement, its log of commits, and which commit counts where.

A committed attempt has the version of the placement that its writer wrote to. It counts for the
partitions whose generation is not above that version, and for which no earlier attempt of the same
map counts. So at most one attempt of each map counts for a partition, whatever was lost in between.
A map whose last version is below the generation of a partition must be written again, for those
partitions only. `mrflight.ids` explains versions and generations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mrflight.ids import MapAttempt
from mrflight.shuffle.metadata.commit_log import CommitLog, hash_output
from mrflight.shuffle.metadata.events import (
    Counts,
    CountsRestored,
    MapCommitted,
    PartitionsPlaced,
    ShuffleCreated,
    decode_counts,
    encode_counts,
)
from mrflight.shuffle.metadata.placement import Placement
from mrflight.shuffle.wire.partition_info import MapCommit, PartitionInfo
from mrflight.shuffle.wire.protocol import CommitMap, ShuffleDescription, ShuffleHealth


@dataclass
class ShuffleState:
    """A shuffle as its metadata server knows it."""

    id: str
    token: str
    replicas: int
    lease_s: float | None
    renewed_s: float
    """The time of the last request that renewed the lease."""
    placement: Placement
    log: CommitLog
    job: str = ""
    """The name of the job that it is for; empty if its client gave none."""

    @classmethod
    def create(cls, event: ShuffleCreated, now_s: float) -> ShuffleState:
        """Return the state of a new shuffle."""
        placement = Placement(
            [tuple(event.locations[i] for i in places) for places in event.placement]
        )
        return cls(
            event.id,
            event.token,
            event.replicas,
            event.lease_s,
            now_s,
            placement,
            CommitLog.empty(len(placement)),
            event.job,
        )

    def counts_for(self, map_id: int, version: int) -> npt.NDArray[np.bool_]:
        """Return, per partition, whether an attempt of a map written to ``version`` will count."""
        generations = self.placement.generations
        return (self.log.latest_version(map_id) < generations) & (generations <= version)

    def missing_partitions(self, map_id: int) -> list[int]:
        """Return the partitions for which no attempt of a map counts."""
        latest = self.log.latest_version(map_id)
        missing: list[int] = np.flatnonzero(self.placement.generations > latest).tolist()
        return missing

    def lost_maps(self) -> list[int]:
        """Return the maps that were committed and have lost rows of some partition."""
        newest = int(self.placement.generations.max())
        if newest == 0:  # Nothing was ever lost, and this is asked four times a second.
            return []
        return self._committed_before(newest)

    def lost_maps_of(self, partition: int) -> list[int]:
        """Return the maps that were committed and whose rows of a partition are lost."""
        return self._committed_before(int(self.placement.generations[partition]))

    def _committed_before(self, version: int) -> list[int]:
        latest = self.log.latest.items()
        return sorted(map_id for map_id, commit in latest if commit.until < version)

    def committed_attempt(self, attempt: MapAttempt, version: int) -> MapAttempt | None:
        """Return the attempt that counts instead of ``attempt``, or itself if it was committed.

        None if it would count for some partition when it is committed now.
        """
        if attempt in self.log.attempts:
            return attempt
        latest = self.log.latest.get(attempt.map_id)
        if latest is None or self.counts_for(attempt.map_id, version).any():
            return None
        return latest.source

    def commit_event(
        self, commit: CommitMap, attempt: MapAttempt, rows: Counts, size_bytes: Counts
    ) -> MapCommitted:
        """Return the event of a commit that is made now, with the rows that it counts for."""
        where = self.counts_for(attempt.map_id, commit.version)
        return MapCommitted(
            self.id,
            *attempt,
            since=self.log.latest_version(attempt.map_id),
            until=commit.version,
            output_hash=hash_output(rows, commit.routing),
            schema=commit.schema if self.log.schema is None else b"",
            rows=encode_counts(np.where(where, rows, 0)),
            size_bytes=encode_counts(np.where(where, size_bytes, 0)),
        )

    def apply_commit(self, event: MapCommitted) -> None:
        """Append a commit, and add its rows to the sums."""
        source = MapAttempt(event.map_id, event.attempt, event.writer)
        commit = MapCommit(source, event.since, event.until)
        self.log.append(commit, event.output_hash, event.schema)
        if event.rows:
            self.log.add(decode_counts(event.rows), decode_counts(event.size_bytes))

    def restore_counts(self, event: CountsRestored) -> None:
        """Set the sums to those that a journal has kept."""
        self.log.rows = decode_counts(event.rows)
        self.log.size_bytes = decode_counts(event.size_bytes)

    def apply_placed(self, event: PartitionsPlaced) -> None:
        """Move partitions, and remove the rows of lost ones from the sums."""
        self.placement.apply(event)
        self.log.clear(event.lost)

    def info(self, partition: int) -> PartitionInfo:
        """Return what a reader needs to know of a partition."""
        return PartitionInfo(
            partition,
            self.placement.locations[partition],
            self.log.epoch,
            int(self.log.rows[partition]),
            int(self.log.size_bytes[partition]),
            int(self.placement.generations[partition]),
        )

    def description(self, map_id: int | None) -> ShuffleDescription:
        """Return where a map is written; without a ``map_id``, a map that was never committed."""
        missing = None if map_id is None else self.missing_partitions(map_id)
        if missing is not None and len(missing) == len(self.placement):
            missing = None
        return ShuffleDescription(
            self.id, *self.placement.indexed, self.placement.version, missing, self.token
        )

    def health(self) -> ShuffleHealth:
        """Return what is lost, and how much is stored."""
        return ShuffleHealth(
            self.placement.version,
            self.lost_maps(),
            int(self.log.size_bytes.sum()),
            list(self.placement.lost_at),
            len(self.log.latest),
        )
