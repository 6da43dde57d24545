"""The messages of the wire contract between clients and servers.

Actions carry JSON bodies, each of them a struct below. The descriptors and
tickets of streams are in `mrflight.shuffle.wire.tickets`, and `mrflight.ids`
explains the identities in both. The `put_shuffle` exchange follows Listing 3.1 of
A. Ferretti, "Distributed Arrow-based Shuffle Operation using Arrow Flight RPC" (2023).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, TypeVar

import msgspec

from mrflight.errors import ProtocolError
from mrflight.ids import MAX_JOB_NAME
from mrflight.system.json_decoders import json_decoder

MAX_BODY_BYTES = 64 * 2**20
"""The size of an action's body. A commit of 100,000 partitions is about 2 MB."""
_MAX_REASON = 400  # characters; gRPC refuses answers whose headers have more than 8,000 bytes

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Location = Annotated[str, msgspec.Meta(max_length=512)]
"""Any host and port, or path of a unix socket, is shorter than this."""
StoreId = Annotated[str, msgspec.Meta(max_length=64, pattern=r"\A[A-Za-z0-9]*\Z")]
"""The id of a data server's folder of event logs, which stays when its process and location change.
"""
JobName = Annotated[
    str, msgspec.Meta(max_length=MAX_JOB_NAME, pattern=r"\A[^\x00-\x1f\x7f-\x9f]*\Z")
]
"""A name for people: no terminal is to be controlled by it."""


class MetadataAction(StrEnum):
    """The actions of a metadata server."""

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
    CREATE_LOG = "create_log"
    DESCRIBE_LOG = "describe_log"
    DROP_LOG = "drop_log"
    CHANGE_LOG_MEMBERS = "change_log_members"
    KEEPALIVE = "pulse"
    """An action of every server that does nothing but answer."""


class DataAction(StrEnum):
    """The actions of a data server, besides DoPut and DoGet."""

    DROP_SHUFFLE = "drop_shuffle"
    DISCARD_ATTEMPT = "discard_attempt"
    STATS = "stats"
    SHARED_MEMORY = "shared_memory"
    LOG_STATE = "log_state"
    TRIM_LOG = "trim_log"
    PIN_LOG = "pin_log"
    DROP_LOG = "drop_log"
    KEEPALIVE = "pulse"


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A body on the wire."""


class PutShuffle(Message, frozen=True):
    """Create a shuffle of ``reducers`` partitions (the thesis's word for their number)."""

    id: str
    reducers: int
    replicas: int = 1
    token: str = ""
    """A client that got no answer repeats the request with the same token, and gets the same
    shuffle."""
    lease_s: float | None = None
    """The shuffle is dropped after so long without a `health` request."""
    job: JobName = ""
    """The name of the job that it is for, which `status` shows."""


class PartitionTarget(Message, frozen=True):
    """The location to which the rows of a partition are sent, and those of its replicas."""

    location: str
    descriptor: str
    replicas: list[str] = []


class PutShuffleResponse(Message, frozen=True):
    """The targets, one per partition, in the order of the partitions."""

    partitions: list[PartitionTarget]


class ShuffleName(Message, frozen=True):
    """Name a shuffle; the body of every request that needs nothing else."""

    id: str
    token: str = ""
    """The token of `PutShuffle`; empty for whichever shuffle has this name now."""


class DescribeShuffle(Message, frozen=True):
    """Ask where a shuffle's partitions are; the writer of a map gives ``map_id``."""

    id: str
    map_id: int | None = None
    token: str = ""


class ShuffleDescription(Message, frozen=True):
    """A shuffle's placement: partition p is on ``locations[i]`` for i in ``placement[p]``."""

    id: str
    locations: list[str]
    placement: list[list[int]]
    version: int = 0
    """The version of the placement. A commit names the version that it was written to."""
    missing: list[int] | None = msgspec.field(name="wanted", default=None)
    """The partitions that lack the rows of this map, because they were lost after it was
    committed; None if all partitions do."""
    token: str = ""

    @property
    def places(self) -> list[tuple[str, ...]]:
        """The locations of each partition."""
        return [tuple(self.locations[i] for i in places) for places in self.placement]


class ShuffleHealth(Message, frozen=True):
    """The state of a shuffle; the maps in ``lost_maps`` must be written again."""

    version: int
    lost_maps: list[int]
    size_bytes: int = 0
    """The bytes of all committed blocks, without replicas."""
    lost_at: list[str] = []
    """The locations with which rows were lost, in that order."""
    maps: int = 0
    """The maps that have been committed, including lost ones."""


class ReportLoss(Message, frozen=True):
    """Report that what ``location`` holds of a shuffle, or of some partitions, cannot be used.

    If the server is alive, the report has no effect unless ``insists`` is set.
    """

    id: str
    location: str
    partitions: list[int] | None = None
    insists: bool = False
    token: str = ""


class ReportLossResponse(Message, frozen=True):
    """``is_lost`` is whether the placement no longer has that location."""

    is_lost: bool


class DropShuffleResponse(Message, frozen=True):
    """The data servers that hold the dropped shuffle, and must drop it as well."""

    locations: list[str]


class Done(Message, frozen=True):
    """The body of a request or an answer without fields."""


class CommitMap(Message, frozen=True):
    """Commit a map attempt that is stored completely; rows and bytes are per partition."""

    id: str
    map_id: int
    attempt: int
    schema: bytes
    """The Arrow IPC schema message of its blocks."""
    rows: list[int]
    size_bytes: list[int]
    writer: str = ""
    version: int = 0
    """The version of the placement that it was written to."""
    without: list[str] = []
    """Locations that could not be reached, and lack the blocks that their replicas have."""
    token: str = ""
    """The token of the shuffle that it was written to."""
    routing: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """Any hash of the partitions of all rows, in their order, to compare two attempts with."""


class CommitMapResponse(Message, frozen=True, omit_defaults=True):
    """The attempt that won this map, and its writer; it need not be the one that asked."""

    attempt: int
    writer: str
    sent_the_same: bool = False
    """Whether another attempt that won sent as many rows to each partition, with the same
    ``routing``."""


class ListCommits(Message, frozen=True):
    """Ask for the committed attempts from position ``since`` on, in order of their commits."""

    id: str
    since: int = 0
    token: str = ""


class ListCommitsResponse(Message, frozen=True):
    """``[map id, attempt, writer, since, until]`` of each commit after ``since``.

    The attempt counts for partitions whose generation is above ``since`` and at most ``until``.
    """

    commits: list[tuple[int, int, str, int, int]] = msgspec.field(name="winners")


class PartitionSize(Message, frozen=True):
    """The rows and bytes that committed attempts put into a partition.

    It is the ``app_metadata`` of an endpoint.
    """

    partition: int
    rows: int
    size_bytes: int


class ServerLocation(Message, frozen=True):
    """Name a data server by the location where clients reach it."""

    location: Location
    incarnation: str = ""
    log_store: StoreId = ""
    """The id of its folder of event logs; empty if it keeps none."""


class DiscardAttempt(Message, frozen=True):
    """Discard the blocks of an attempt that will not be committed."""

    shuffle: str
    map_id: int
    attempt: int
    writer: str = ""
    token: str = ""


class PutReceipt(Message, frozen=True):
    """The answer at the end of a DoPut: how much of this stream has been stored."""

    blocks: int
    rows: int


class SharedMemoryOffer(Message, frozen=True):
    """Where a data server passes memory to processes of its machine: see `segment_channel`."""

    name: str = ""
    """The name of its listener; empty if it has none."""
    proof: str = ""
    """The secret that the server's first segment holds, in hexadecimal."""


M = TypeVar("M", bound=Message)


def decode(body: bytes | memoryview, message: type[M]) -> M:
    """Return the message in ``body``; raise ProtocolError with what is wrong with it and where."""
    if len(body) > MAX_BODY_BYTES:
        raise ProtocolError(f"{message.__name__}: {len(body)} bytes, more than {MAX_BODY_BYTES}")
    try:
        return json_decoder(message).decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"{message.__name__}: {_shorten(str(error))}") from error


def _shorten(reason: str) -> str:
    """Return a long reason without its middle: its end says where the mistake is."""
    if len(reason) <= _MAX_REASON:
        return reason
    half = _MAX_REASON // 2
    return f"{reason[:half]} ... {reason[-half:]}"
