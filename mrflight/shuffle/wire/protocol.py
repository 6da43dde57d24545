"""The wire contract: what a client and the servers say to each other.

Actions carry JSON bodies, each a struct below; what descriptors and tickets of
streams say is in `mrflight.shuffle.wire.tickets`. The `put_shuffle` exchange is that
of Listing 3.1 of A. Ferretti, "Distributed Arrow-based Shuffle Operation using
Arrow Flight RPC" (2023).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, TypeVar

import msgspec

from mrflight.errors import ProtocolError

MAX_BODY_BYTES = 64 * 2**20
"""Of an action's body. A commit of 100,000 partitions is about 2 MB."""
_LONGEST_REASON = 400  # letters; gRPC refuses answers whose headers have more than 8,000 bytes

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Location = Annotated[str, msgspec.Meta(max_length=512)]
"""Longer than a host and a port, or the path of a unix socket, can be."""


class MetadataAction(StrEnum):
    """What a metadata server is asked."""

    PUT_SHUFFLE = "put_shuffle"
    DESCRIBE_SHUFFLE = "describe_shuffle"
    DROP_SHUFFLE = "drop_shuffle"
    COMMIT_MAP = "commit_map"
    WINNERS = "winners"
    REGISTER_SERVER = "register_server"
    DRAIN_SERVER = "drain_server"
    UNREGISTER_SERVER = "unregister_server"
    HEARTBEAT = "heartbeat"
    HEALTH = "health"
    REPORT_LOSS = "report_loss"
    PLAN_MOVE = "plan_move"
    MOVE_PARTITIONS = "move_partitions"
    STATUS = "status"
    LEASE_COMMITS = "lease_commits"
    RELEASE_COMMITS = "release_commits"
    CORRECT_VERSIONS = "correct_versions"
    RECORD_VERSION = "record_version"
    PULSE = "pulse"
    """Of every server: nothing is done, and that is answered."""


class DataAction(StrEnum):
    """What a data server is asked, besides DoPut and DoGet."""

    DROP_SHUFFLE = "drop_shuffle"
    DISCARD_ATTEMPT = "discard_attempt"
    STATS = "stats"
    PULSE = "pulse"


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A body on the wire."""


class PutShuffle(Message, frozen=True):
    """Make a shuffle of ``reducers`` partitions (the thesis's word for their number)."""

    id: str
    reducers: int
    replicas: int = 1
    token: str = ""
    """Who asks again with the same one, as no answer came, gets the same shuffle."""
    lease_s: float | None = None
    """Without a `health` request for so long the shuffle is dropped."""


class PartitionTarget(Message, frozen=True):
    """Where a partition's rows are sent: the first location, and its replicas behind it."""

    location: str
    descriptor: str
    replicas: list[str] = []


class PutShuffleResponse(Message, frozen=True):
    """One target per partition, in their order."""

    partitions: list[PartitionTarget]


class ShuffleName(Message, frozen=True):
    """The body of every request that only names a shuffle."""

    id: str
    token: str = ""
    """That of `PutShuffle`, where not just any shuffle of this name is meant."""


class DescribeShuffle(Message, frozen=True):
    """Where a shuffle's partitions are; with ``map_id``, for whoever is to write this map."""

    id: str
    map_id: int | None = None
    token: str = ""


class ShuffleDescription(Message, frozen=True):
    """A shuffle's placement: partition p is on ``locations[i]`` for i in ``placement[p]``."""

    id: str
    locations: list[str]
    placement: list[list[int]]
    version: int = 0
    """Of the placement; a commit says to which one it was written."""
    wanted: list[int] | None = None
    """The partitions that a map is to be written to, where that is not all of them: those that
    were lost since it was committed."""
    token: str = ""
    """What tells this shuffle from another one that is given its name later."""


class ShuffleHealth(Message, frozen=True):
    """``version`` grows with each change of placement; ``lost_maps`` are to be written again."""

    version: int
    lost_maps: list[int]
    size_bytes: int = 0
    """Of all blocks that count, replicas not counted."""
    lost_at: list[str] = []
    """The locations that rows were lost with, in this order."""
    maps: int = 0
    """That have been committed, lost or not."""


class ReportLoss(Message, frozen=True):
    """What ``location`` holds of a shuffle, or some of its partitions, cannot be used.

    A server that lives is believed rather than the report, unless ``insists`` is set.
    """

    id: str
    location: str
    partitions: list[int] | None = None
    insists: bool = False
    token: str = ""


class ReportLossResponse(Message, frozen=True):
    """Whether the placement goes without that location now."""

    is_lost: bool


class PlanMove(Message, frozen=True):
    """Ask where the partitions of a shuffle can go that only ``origin`` holds."""

    id: str
    origin: str


class PlanMoveResponse(Message, frozen=True):
    """The partitions, and a target for each; no targets where there is no other server."""

    partitions: list[int]
    targets: list[str]


class MovePartitions(Message, frozen=True):
    """``partitions`` were copied from ``origin`` to ``targets``, one each, as they were then."""

    id: str
    origin: str
    partitions: list[int]
    targets: list[str]
    epoch: int
    version: int


class DropShuffleResponse(Message, frozen=True):
    """The data servers that hold the dropped shuffle and are to drop it as well."""

    locations: list[str]


class Done(Message, frozen=True):
    """The body of a request, or of an answer, that says nothing more."""


class CommitMap(Message, frozen=True):
    """A map attempt has been stored whole; ``rows`` and ``size_bytes`` are per partition."""

    id: str
    map_id: int
    attempt: int
    schema: bytes
    """Arrow IPC schema message of its blocks."""
    rows: list[int]
    size_bytes: list[int]
    writer: str = ""
    """Whose blocks these are, where several write one attempt."""
    version: int = 0
    """Of the placement that it was written to."""
    without: list[str] = []
    """Locations that could not be reached, and do not have the blocks that their replicas have."""
    token: str = ""
    """Of the shuffle that it was written to: one that was dropped and made anew has another."""
    routing: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """Any hash of the partitions of all rows in their order, by which two attempts are compared."""


class CommitMapResponse(Message, frozen=True, omit_defaults=True):
    """The attempt that won this map, which may be another one, and its writer."""

    attempt: int
    writer: str
    sent_the_same: bool = False
    """Of another one: as many rows to each partition as who asks, and of the same ``routing``."""


class Winners(Message, frozen=True):
    """Ask for the committed attempts from position ``since`` on, in order of their commits."""

    id: str
    since: int = 0


class WinnersResponse(Message, frozen=True):
    """``[map id, attempt, writer, since, until]`` of each commit after ``since``.

    The attempt counts for partitions whose generation is above ``since`` and at most ``until``.
    """

    winners: list[tuple[int, int, str, int, int]]


class PartitionSize(Message, frozen=True):
    """What the committed attempts promised of one partition; an endpoint's ``app_metadata``."""

    partition: int
    rows: int
    size_bytes: int


class ServerLocation(Message, frozen=True):
    """A data server, by the location where clients reach it."""

    location: Location
    incarnation: str = ""
    """What no other process at this location has, or will have."""


class Heartbeat(Message, frozen=True):
    """A data server lives; ``shuffles`` are those that it holds."""

    location: Location
    shuffles: list[str] = []
    stored_bytes: Int64 = 0
    incarnation: str = ""
    tokens: list[str] = []
    """Of the shuffles, in their order, where it knows them."""


class HeartbeatResponse(Message, frozen=True):
    """``registered`` false: register again. ``drop``: held shuffles that are no more."""

    registered: bool
    drop: list[str]


class DiscardAttempt(Message, frozen=True):
    """Forget what an attempt put, for it will not be committed."""

    shuffle: str
    map_id: int
    attempt: int
    writer: str = ""


class PutReceipt(Message, frozen=True):
    """The answer at the end of a DoPut: what has been stored of this stream."""

    blocks: int
    rows: int


class ServerStats(Message, frozen=True, omit_defaults=True):
    """What a data server holds now. Bytes are those of blocks, of which some are spilled."""

    shuffles: int
    blocks: int
    size_bytes: int
    memory_bytes: int = 0
    """Counted against the server's budget."""
    spilled_blocks: int = 0
    spilled_bytes: int = 0
    dead_bytes: int = 0
    """On disk and of no use any more, until the shuffle is dropped."""


class ServerStatus(Message, frozen=True):
    """A data server that lives, as the metadata server sees it."""

    location: str
    partitions: int
    stored_bytes: int


class ShuffleStatus(Message, frozen=True):
    """A shuffle as the metadata server sees it."""

    id: str
    partitions: int
    maps: int
    rows: int
    size_bytes: int


class StatusResponse(Message, frozen=True):
    """Everything a cluster knows of itself."""

    servers: list[ServerStatus]
    shuffles: list[ShuffleStatus]


M = TypeVar("M", bound=Message)


def decode(body: bytes | memoryview, message: type[M]) -> M:
    """The message in ``body``; ProtocolError says what is wrong with it and where."""
    if len(body) > MAX_BODY_BYTES:
        raise ProtocolError(f"{message.__name__}: {len(body)} bytes, more than {MAX_BODY_BYTES}")
    try:
        return msgspec.json.decode(body, type=message)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"{message.__name__}: {_shortened(str(error))}") from error


def _shortened(reason: str) -> str:
    """Without its middle where it is long: it may name a field, and says where at its end."""
    if len(reason) <= _LONGEST_REASON:
        return reason
    half = _LONGEST_REASON // 2
    return f"{reason[:half]} ... {reason[-half:]}"
