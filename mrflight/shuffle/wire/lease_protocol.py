"""The wire contract of commits that are fenced: one job at a time, and what it committed is known.

For tables in stores that cannot tell which of two writers of one version was first. A lease keeps
them apart; but who was asleep beyond the end of its lease still writes when it wakes up. So what
each version is, is recorded here, first come: of two jobs that believe to have committed one
version the second learns of it, and later ones see whether a version is still what was recorded.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from mrflight.shuffle.wire.protocol import Int64, Message

MOST_REMEMBERED = 8
"""Versions of a table: each is a small file that every commit reads again."""

MOST_LEASE_S = 600.0

TableName = Annotated[str, msgspec.Meta(max_length=1024)]
"""What all who commit to a table call it: `Store.fence`."""
Name = Annotated[str, msgspec.Meta(max_length=64)]
Digest = Annotated[str, msgspec.Meta(max_length=64)]
"""SHA-256 of an entry of the log, in hexadecimal; empty for one that is not there."""


class VersionRecord(Message, frozen=True):
    """What a version of a table is: the digest of its log entry, and the job that committed it."""

    version: Int64
    digest: Digest
    job: Name = ""


class LeaseCommits(Message, frozen=True):
    """Ask to be the only one who commits to a table, or with ``number`` to stay so."""

    table: TableName
    holder: Name
    """Whoever asks again with the same one, as no answer came, gets the same lease."""
    lease_s: float
    """Without being asked for again for so long it ends."""
    number: Int64 = 0


class CommitLease(Message, frozen=True):
    """Until it ends nobody else has one for that table; the next one has a higher number."""

    number: Int64
    versions: Annotated[list[VersionRecord], msgspec.Meta(max_length=MOST_REMEMBERED)]
    """The last that were recorded, in that order."""


class HeldLease(Message, frozen=True):
    """End a lease; nothing is done where it has ended already."""

    table: TableName
    holder: Name
    number: Int64


class CorrectVersions(Message, frozen=True):
    """These versions are not what was recorded, or are gone, says who has the lease."""

    table: TableName
    holder: Name
    number: Int64
    versions: Annotated[list[VersionRecord], msgspec.Meta(max_length=MOST_REMEMBERED)]


class RecordVersion(Message, frozen=True):
    """A job has committed a version; the answer is who did so first, and counts."""

    table: TableName
    version: Int64
    digest: Digest
    job: Name


class RecordedVersion(Message, frozen=True):
    """What is recorded of a version: see `VersionRecord`."""

    digest: Digest
    job: Name
