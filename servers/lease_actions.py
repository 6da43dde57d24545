"""The metadata server's actions for commit leases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mrflight.shuffle.metadata.commit_leases import CommitLeases
from mrflight.shuffle.wire.lease_protocol import (
    CommitLease,
    CorrectVersions,
    HeldLease,
    LeaseCommits,
    RecordedVersion,
    RecordVersion,
)
from mrflight.shuffle.wire.protocol import Done, Message, MetadataAction


def lease_actions(
    leases: CommitLeases,
) -> Mapping[str, tuple[type[Message], Callable[[Any], Message]]]:
    """Return the message and the handler of each action."""

    def lease_commits(request: LeaseCommits) -> Message:
        return CommitLease(
            *leases.acquire(request.table, request.holder, request.lease_s, request.number)
        )

    def release_commits(request: HeldLease) -> Message:
        leases.release(request.table, request.holder, request.number)
        return Done()

    def correct_versions(request: CorrectVersions) -> Message:
        leases.correct(request.table, request.holder, request.number, request.versions)
        return Done()

    def record_version(request: RecordVersion) -> Message:
        known = leases.record(request.table, request.version, request.digest, request.job)
        return RecordedVersion(known.digest, known.job)

    return {
        MetadataAction.LEASE_COMMITS: (LeaseCommits, lease_commits),
        MetadataAction.RELEASE_COMMITS: (HeldLease, release_commits),
        MetadataAction.CORRECT_VERSIONS: (CorrectVersions, correct_versions),
        MetadataAction.RECORD_VERSION: (RecordVersion, record_version),
    }
