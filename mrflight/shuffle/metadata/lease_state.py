"""Tables with fenced commits, as their metadata server knows them: leases, and the last versions.

Applies events, and decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mrflight.shuffle.metadata.events import (
    CommitLeaseEnded,
    CommitLeaseGiven,
    VersionForgotten,
    VersionRecorded,
)
from mrflight.shuffle.wire.lease_protocol import MAX_VERSIONS, VersionRecord


@dataclass
class Lease:
    """That of one job, to commit to one table."""

    number: int
    holder: str
    lease_s: float
    renewed_s: float

    def is_over(self, now_s: float) -> bool:
        return now_s - self.renewed_s > self.lease_s


@dataclass
class TableState:
    """One table."""

    lease: Lease | None = None
    versions: dict[int, VersionRecord] = field(default_factory=dict)
    """The last `MAX_VERSIONS` that were recorded, in that order."""


@dataclass
class TableStates:
    """All that have a lease, or of which a version is known."""

    by_name: dict[str, TableState] = field(default_factory=dict)
    last_number: int = 0
    """Of all leases of all tables: what is forgotten of a table takes no number back."""

    def apply(
        self,
        event: CommitLeaseGiven | CommitLeaseEnded | VersionRecorded | VersionForgotten,
        now_s: float,
    ) -> None:
        state = self.by_name.setdefault(event.table, TableState())
        match event:
            case CommitLeaseGiven():
                self.last_number = max(self.last_number, event.number)
                state.lease = Lease(event.number, event.holder, event.lease_s, now_s)
            case CommitLeaseEnded():
                if state.lease is not None and state.lease.number == event.number:
                    state.lease = None
            case VersionRecorded():
                state.versions.pop(event.version, None)
                state.versions[event.version] = VersionRecord(
                    event.version, event.digest, event.job
                )
                for oldest in list(state.versions)[:-MAX_VERSIONS]:
                    del state.versions[oldest]
            case VersionForgotten():
                state.versions.pop(event.version, None)
        if state.lease is None and not state.versions:
            del self.by_name[event.table]
