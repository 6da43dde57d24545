"""The log of a shuffle's commits, and the rows and bytes that they put into each partition."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import xxhash

from mrflight.compute.layout import canonical_schema
from mrflight.ids import MapAttempt
from mrflight.shuffle.metadata.events import Counts
from mrflight.shuffle.wire.partition_info import MapCommit

NEVER = -1
"""The version of a map that was never committed."""


@dataclass
class CommitLog:
    """The committed attempts of one shuffle, and sums over them.

    ``rows`` and ``size_bytes`` are per partition, and count what was committed and not lost since.
    """

    rows: Counts
    size_bytes: Counts
    schema: pa.Schema | None = None
    """The schema of the first commit that has columns."""
    commits: list[MapCommit] = field(default_factory=list)
    """In the order of the commits. An epoch is a length of this list."""
    attempts: set[MapAttempt] = field(default_factory=set)
    """The attempts in ``commits``."""
    latest: dict[int, MapCommit] = field(default_factory=dict)
    """The last commit of each map."""
    output_hashes: dict[int, int] = field(default_factory=dict)
    """The `hash_output` of each map's first commit."""

    @classmethod
    def empty(cls, partitions: int) -> CommitLog:
        """Return a log without commits."""
        return cls(np.zeros(partitions, np.int64), np.zeros(partitions, np.int64))

    @property
    def epoch(self) -> int:
        """The number of commits."""
        return len(self.commits)

    def latest_version(self, map_id: int) -> int:
        """Return the version of the placement that the last commit of a map was written to."""
        latest = self.latest.get(map_id)
        return NEVER if latest is None else latest.until

    def append(self, commit: MapCommit, output_hash: int, encoded_schema: bytes) -> None:
        """Append a commit, without its rows and bytes."""
        self.commits.append(commit)
        self.attempts.add(commit.source)
        self.latest[commit.source.map_id] = commit
        self.output_hashes.setdefault(commit.source.map_id, output_hash)
        if self.schema is None:
            schema = canonical_schema(pa.ipc.read_schema(pa.py_buffer(encoded_schema)))
            self.schema = schema if len(schema) else None

    def add(self, rows: Counts, size_bytes: Counts) -> None:
        """Add rows and bytes to the sums."""
        self.rows += rows
        self.size_bytes += size_bytes

    def clear(self, partitions: list[int]) -> None:
        """Set the sums of lost partitions to 0."""
        self.rows[partitions] = 0
        self.size_bytes[partitions] = 0


def hash_output(rows: Counts, routing: str) -> int:
    """Return a hash of the rows that a map sends to each partition, and of its ``routing``.

    Two attempts with the same hash send as many rows to each partition and, if both have a
    ``routing``, each row to the same partition. Then some partitions of one attempt together with
    the other partitions of the other have every row once.
    """
    return xxhash.xxh3_64_intdigest(rows.tobytes() + routing.encode())
