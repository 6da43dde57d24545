"""What can happen to a metadata server's knowledge: applied one after the other, they make it.

A journal of these is all that a metadata server needs to go on where another one ended.
"""

from __future__ import annotations

import msgspec

from mrflight.errors import JournalError


class Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="event", tag=True):
    """Something that happened, and was possible when it did."""


class ServerJoined(Event, frozen=True):
    """A data server takes partitions from now on; ``incarnation`` tells two of one location apart.

    What an earlier incarnation held is not there any more.
    """

    location: str
    incarnation: str


class ServerDraining(Event, frozen=True):
    """A data server takes no new partitions; what it holds it still serves."""

    location: str


class ServerGone(Event, frozen=True):
    """A data server is not there any more."""

    location: str


class ShuffleMade(Event, frozen=True):
    """A shuffle: partition p is on ``locations[i]`` for i in ``placement[p]``."""

    id: str
    token: str
    replicas: int
    lease_s: float | None
    locations: list[str]
    placement: list[list[int]]


class ShuffleDropped(Event, frozen=True):
    """A shuffle is no more."""

    id: str


class MapCommitted(Event, frozen=True):
    """A map attempt counts, for the partitions that its map did not have in ``version``."""

    id: str
    map_id: int
    attempt: int
    writer: str
    version: int
    """Of the placement to which it wrote."""
    schema: bytes
    rows: bytes
    """As `packed`, and so are ``size_bytes``."""
    size_bytes: bytes
    routing: str = ""
    """A hash of where each row went, or nothing."""


class MapsCommitted(Event, frozen=True):
    """Several `MapCommitted` of a shuffle, one after the other.

    Made when a journal is compacted. ``rows`` and ``size_bytes`` are what they add to its sums,
    `packed`.
    """

    id: str
    schema: bytes
    """Of the first that has columns."""
    commits: list[tuple[int, int, str, int, int, int]]
    """Of each its map, attempt and writer, between which versions it counts, and what
    `hash_of_sent` was of it."""
    rows: bytes
    size_bytes: bytes


class PartitionsPlaced(Event, frozen=True):
    """Partitions of a shuffle have other locations; what was written to ``lost`` is gone."""

    id: str
    partitions: list[int]
    locations: list[list[str]]
    lost: list[int]
    moved: list[int] = []
    """Of those that are not lost: who wrote to the old locations has not written to the new."""
    avoided: list[str] = []
    """Locations that this shuffle is not placed on again."""


class CommitLeaseGiven(Event, frozen=True):
    """A job may commit to a table, for ``lease_s`` or as long as it asks again; no other one may.

    The ``number`` is above that of every lease that was given before, of whichever table.
    """

    table: str
    number: int
    holder: str
    lease_s: float


class CommitLeaseEnded(Event, frozen=True):
    """The job with this lease is done, or has not been heard of for too long."""

    table: str
    number: int


class VersionRecorded(Event, frozen=True):
    """What a version of a table is, in the place of what was known of it: see `VersionRecord`."""

    table: str
    version: int
    digest: str
    job: str


class VersionForgotten(Event, frozen=True):
    """A version of a table is not there any more."""

    table: str
    version: int


AnyEvent = (
    ServerJoined
    | ServerDraining
    | ServerGone
    | ShuffleMade
    | ShuffleDropped
    | MapCommitted
    | MapsCommitted
    | PartitionsPlaced
    | CommitLeaseGiven
    | CommitLeaseEnded
    | VersionRecorded
    | VersionForgotten
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AnyEvent)


def encode_event(event: AnyEvent) -> bytes:
    """The record of an event in a journal."""
    return _encoder.encode(event)


def decode_event(record: bytes) -> AnyEvent:
    """The event in a journal's record; JournalError where it is none."""
    try:
        return _decoder.decode(record)
    except msgspec.MsgspecError as error:
        raise JournalError(
            f"a record of the journal is no event: {error}; it was written by another version of "
            "mrflight, which is to be used, or the journal is to be moved away"
        ) from error
