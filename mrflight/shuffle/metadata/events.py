"""The events that change the state of a metadata server, and their records in its journal.

Applied one after the other they produce the whole state, so a journal of events is all that a
metadata server needs to continue after a restart.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from mrflight.errors import JournalError

Counts = npt.NDArray[np.int64]
"""Rows or bytes of every partition, in the order of the partitions; none is negative."""


class Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="event", tag=True):
    """A change that was allowed when it was recorded."""


class ServerJoined(Event, frozen=True):
    """A data server takes partitions from now on, and starts without any blocks.

    ``incarnation`` tells it from an earlier process at the same location.
    """

    location: str
    incarnation: str
    log_store: str = ""
    """The id of its folder of event logs; empty if it keeps none."""


class ServerDraining(Event, frozen=True):
    """A data server takes no new partitions, and still serves those that it holds."""

    location: str


class ServerGone(Event, frozen=True):
    """A data server has stopped, or was declared lost."""

    location: str


class ShuffleCreated(Event, frozen=True):
    """A shuffle was created: partition p is on ``locations[i]`` for i in ``placement[p]``."""

    id: str
    token: str
    replicas: int
    lease_s: float | None
    locations: list[str]
    placement: list[list[int]]
    job: str = ""


class ShuffleDropped(Event, frozen=True):
    """A shuffle was dropped by a client, or its lease ended."""

    id: str


class MapCommitted(Event, frozen=True):
    """A map attempt was committed: see `MapCommit` for ``since`` and ``until``."""

    id: str
    map_id: int
    attempt: int
    writer: str
    since: int
    until: int
    output_hash: int
    """The `hash_output` of all rows that the attempt sends."""
    schema: bytes
    """Empty if the shuffle has a schema already."""
    rows: bytes
    """The rows in each partition that the attempt counts for, and 0 in the others, as
    `encode_counts` returns them. Empty in a journal, which keeps `CountsRestored`."""
    size_bytes: bytes
    """The bytes in each partition, encoded like ``rows``."""


class CountsRestored(Event, frozen=True):
    """The sums over the commits of a shuffle, in place of the counts of each commit.

    A journal keeps one per shuffle. ``rows`` and ``size_bytes`` are as `encode_counts` returns
    them.
    """

    id: str
    rows: bytes
    size_bytes: bytes


class PartitionsPlaced(Event, frozen=True):
    """Partitions of a shuffle have new locations; the rows of those in ``lost`` are gone."""

    id: str
    partitions: list[int]
    locations: list[list[str]]
    lost: list[int]
    moved: list[int] = []
    """Partitions that keep their rows at new locations, to which open writers do not write."""
    avoided: list[str] = []
    """Locations where no partition of this shuffle is placed any more."""


class CommitLeaseGranted(Event, frozen=True):
    """A job is the only one that may commit to a table, for ``lease_s`` after each renewal.

    The ``number`` is above that of every earlier lease of any table.
    """

    table: str
    number: int
    holder: str
    lease_s: float


class CommitLeaseEnded(Event, frozen=True):
    """A lease was released by its holder, or was not renewed in time."""

    table: str
    number: int


class VersionRecorded(Event, frozen=True):
    """A version of a table was committed; this replaces an earlier record: see `VersionRecord`."""

    table: str
    version: int
    digest: str
    job: str


class VersionForgotten(Event, frozen=True):
    """A version of a table is no longer in its log."""

    table: str
    version: int


class LogCreated(Event, frozen=True):
    """An event log was created on the servers that have these folders; the first one owns it."""

    name: str
    token: str
    replicas: int
    members: list[str]


class LogPlaced(Event, frozen=True):
    """An event log has another owner, or other members: those that have every row of it."""

    name: str
    epoch: int
    owner: str
    members: list[str]


class LogDropped(Event, frozen=True):
    """An event log was dropped."""

    name: str


AnyEvent = (
    ServerJoined
    | ServerDraining
    | ServerGone
    | ShuffleCreated
    | ShuffleDropped
    | MapCommitted
    | CountsRestored
    | PartitionsPlaced
    | CommitLeaseGranted
    | CommitLeaseEnded
    | VersionRecorded
    | VersionForgotten
    | LogCreated
    | LogPlaced
    | LogDropped
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AnyEvent)


def encode_event(event: AnyEvent) -> bytes:
    """Return the record of an event."""
    return _encoder.encode(event)


def decode_event(record: bytes) -> AnyEvent:
    """Return the event of a record; raise JournalError if it is not one."""
    try:
        return _decoder.decode(record)
    except msgspec.MsgspecError as error:
        raise JournalError(
            f"a record of the journal is not a valid event: {error}; it was written by another "
            "version of mrflight: use that version, or move the journal away"
        ) from error


def encode_counts(counts: Counts) -> bytes:
    """Return the width of each number in bytes (1, 2, 4 or 8), then the numbers, little-endian.

    All numbers have the width that the largest needs. Reading 10,000 of them takes a tenth of the
    time that a list of numbers takes, and the journal reads and writes them at every commit.
    """
    width = np.min_scalar_type(counts.max(initial=0)).itemsize
    return bytes([width]) + counts.astype(f"<u{width}").tobytes()


def decode_counts(record: bytes) -> Counts:
    """Return what `encode_counts` was given."""
    return np.frombuffer(record, f"<u{record[0]}", offset=1).astype(np.int64)
