"""The client side of commit leases."""

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
    """Holds commit leases of one table as ``holder``. Every request may be repeated."""

    def __init__(self, metadata: MetadataClient, table: str, holder: str) -> None:
        self._metadata = metadata
        self._table = table
        self._holder = holder

    def lease(self, lease_s: float, number: int = 0) -> CommitLease:
        """Take the lease, or renew the one with ``number``.

        Raises LeaseHeldError while another holder has it, and LeaseLostError if the lease to renew
        has ended.
        """
        request = LeaseCommits(self._table, self._holder, lease_s, number)
        return self._metadata.ask(MetadataAction.LEASE_COMMITS, request, CommitLease)

    def release(self, number: int) -> None:
        """End the lease."""
        request = HeldLease(self._table, self._holder, number)
        self._metadata.ask(MetadataAction.RELEASE_COMMITS, request, Done)

    def correct(self, number: int, versions: list[VersionRecord]) -> None:
        """Correct recorded versions; one without a digest is gone. Raises LeaseLostError."""
        request = CorrectVersions(self._table, self._holder, number, versions)
        self._metadata.ask(MetadataAction.CORRECT_VERSIONS, request, Done)

    def record(self, version: VersionRecord) -> RecordedVersion:
        """Record a committed version, and return the first record of that version, which counts."""
        request = RecordVersion(self._table, version.version, version.digest, version.job)
        return self._metadata.ask(MetadataAction.RECORD_VERSION, request, RecordedVersion)
