"""Fenced commits from a job's side: its turn to commit to a table, and what is known of it."""

from __future__ import annotations

from mrflight.shuffle.client.metadata_client import MetadataClient
from mrflight.shuffle.wire.lease_protocol import (
    CommitLease,
    CorrectVersions,
    HeldLease,
    LeaseCommits,
    RecordedVersion,
    RecordVersion,
    VersionRecord,
)
from mrflight.shuffle.wire.protocol import Done, MetadataAction


class LeaseClient:
    """Asks a metadata server about one table, as ``holder``. Every request may be repeated."""

    def __init__(self, metadata: MetadataClient, table: str, holder: str) -> None:
        self._metadata = metadata
        self._table = table
        self._holder = holder

    def lease(self, lease_s: float, number: int = 0) -> CommitLease:
        """A lease, or with its number the same again. LeaseHeldError, LeaseLostError."""
        request = LeaseCommits(self._table, self._holder, lease_s, number)
        return self._metadata.ask(MetadataAction.LEASE_COMMITS, request, CommitLease)

    def release(self, number: int) -> None:
        """End the lease."""
        request = HeldLease(self._table, self._holder, number)
        self._metadata.ask(MetadataAction.RELEASE_COMMITS, request, Done)

    def correct(self, number: int, versions: list[VersionRecord]) -> None:
        """Versions are not what was recorded; without a digest they are gone. LeaseLostError."""
        request = CorrectVersions(self._table, self._holder, number, versions)
        self._metadata.ask(MetadataAction.CORRECT_VERSIONS, request, Done)

    def record(self, version: VersionRecord) -> RecordedVersion:
        """What counts for a version that was committed: the first that was recorded."""
        request = RecordVersion(self._table, version.version, version.digest, version.job)
        return self._metadata.ask(MetadataAction.RECORD_VERSION, request, RecordedVersion)
