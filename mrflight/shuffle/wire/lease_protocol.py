"""The messages of commit leases: one job at a time commits to a table, and versions are recorded.

They serve tables in stores that cannot tell which of two writers of a version was first. A lease
keeps writers apart, but a job that was suspended past the end of its lease still writes when it
wakes up. So the first record of each version is kept: if two jobs believe that they have committed
the same version, the second one learns that it has not, and later jobs see whether a version is
still what was recorded.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from mrflight.shuffle.wire.protocol import Int64, Message

MAX_VERSIONS = 8
"""The versions of a table that are remembered. Each is a small file that every commit reads."""

MAX_LEASE_S = 600.0

TableName = Annotated[str, msgspec.Meta(max_length=1024)]
"""The name of a table that all its writers agree on: `Store.lock_name`."""
Name = Annotated[str, msgspec.Meta(max_length=64)]
Digest = Annotated[str, msgspec.Meta(max_length=64)]
"""The SHA-256 of an entry of the log, in hexadecimal; empty for an entry that is not there."""


class VersionRecord(Message, frozen=True):
    """A version of a table: the digest of its log entry, and the job that committed it."""

    version: Int64
    digest: Digest
    job: Name = ""


class LeaseCommits(Message, frozen=True):
    """Take the lease of a table; with ``number``, renew it."""

    table: TableName
    holder: Name
    """A holder that got no answer and repeats the request gets the same lease."""
    lease_s: float
    """The lease ends after so long without being renewed."""
    number: Int64 = 0


class CommitLease(Message, frozen=True):
    """The only lease of a table until it ends; the next one has a higher number."""

    number: Int64
    versions: Annotated[list[VersionRecord], msgspec.Meta(max_length=MAX_VERSIONS)]
    """The last versions that were recorded, in that order."""


class HeldLease(Message, frozen=True):
    """End a lease, unless it has ended already."""

    table: TableName
    holder: Name
    number: Int64


class CorrectVersions(Message, frozen=True):
    """Correct the record of versions that have changed or are gone; only the holder may."""

    table: TableName
    holder: Name
    number: Int64
    versions: Annotated[list[VersionRecord], msgspec.Meta(max_length=MAX_VERSIONS)]


class RecordVersion(Message, frozen=True):
    """Record that the holder of the lease has committed a version.

    The answer is the first record of the version.
    """

    table: TableName
    holder: Name
    number: Int64
    version: Int64
    digest: Digest
    job: Name


class RecordedVersion(Message, frozen=True):
    """The record of a version that counts: see `VersionRecord`."""

    digest: Digest
    job: Name
