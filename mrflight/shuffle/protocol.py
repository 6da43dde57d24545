"""The wire contract: what a client and the servers say to each other.

Actions carry JSON bodies, each a struct below. The `put_shuffle` exchange and
the tickets of a flight-info are those of Listings 3.1 and 3.2 of A. Ferretti,
"Distributed Arrow-based Shuffle Operation using Arrow Flight RPC" (2023).

A map's rows reach a data server in one of two ways:

- blocks, as our own writer sends them: one stream per server under the
  command descriptor `BlockStream`; each message is one block as bytes, tagged
  with its partition and rows in ``app_metadata`` (see `mrflight.shuffle.block`);
- record batches, from a plain Flight client in any language: one stream per
  partition under the path descriptor ``<shuffle>/<partition>/<map>/<attempt>``.

A ticket is ``<shuffle>/<partition>/<epoch>``, answered with record batches; with
``/blocks`` behind it, with blocks. Then the partition may be several,
``<shuffle>/7,8,9/<epoch>/blocks``, whose blocks come one partition after the
other, or a share of one, ``<shuffle>/7/<epoch>/blocks/2-of-5``, counted from 0
(see `mrflight.shuffle.share`). The epoch says how many map attempts had been
committed when the ticket was made: the reader gets those, whatever comes later.
Of a partition that was lost and written again it is ``<epoch>.<generation>``
(see `mrflight.shuffle.shuffle_state`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, TypeVar

import msgspec

from mrflight.errors import ProtocolError
from mrflight.ids import MAX_PARTITIONS, MapAttempt, check_attempt, check_shuffle_id
from mrflight.shuffle.share import MAX_SHARES, Share

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


class DataAction(StrEnum):
    """What a data server is asked, besides DoPut and DoGet."""

    DROP_SHUFFLE = "drop_shuffle"
    DISCARD_ATTEMPT = "discard_attempt"
    STATS = "stats"


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


class DescribeShuffle(Message, frozen=True):
    """Where a shuffle's partitions are; with ``map_id``, for whoever is to write this map."""

    id: str
    map_id: int | None = None


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


class ShuffleHealth(Message, frozen=True):
    """``version`` grows with each change of placement; ``lost_maps`` are to be written again."""

    version: int
    lost_maps: list[int]
    size_bytes: int = 0
    """Of all blocks that count, replicas not counted."""
    lost_at: list[str] = []
    """The locations that rows were lost with, in this order."""


class ReportLoss(Message, frozen=True):
    """What ``location`` holds of a shuffle, or some of its partitions, cannot be used.

    A server that lives is believed rather than the report, unless ``insists`` is set.
    """

    id: str
    location: str
    partitions: list[int] | None = None
    insists: bool = False


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


class CommitMapResponse(Message, frozen=True):
    """The attempt that won this map, which may be another one, and its writer."""

    attempt: int
    writer: str = ""


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


class HeartbeatResponse(Message, frozen=True):
    """``registered`` false: register again. ``drop``: held shuffles that are no more."""

    registered: bool
    drop: list[str]


class BlockStream(Message, frozen=True):
    """The command descriptor of a DoPut of blocks: whose they are."""

    shuffle: str
    map_id: int
    attempt: int
    writer: str = ""

    def encode(self) -> bytes:
        return msgspec.json.encode(self)


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
    """A data server as the metadata server sees it."""

    location: str
    alive: bool
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


class PutTarget(msgspec.Struct, frozen=True):
    """What a DoPut's descriptor says; ``partition`` None where each block is tagged."""

    shuffle: str
    source: MapAttempt
    partition: int | None


class ReadTicket(msgspec.Struct, frozen=True):
    """What a ticket says."""

    shuffle: str
    partition: int
    epoch: int
    blocks: bool = False
    others: tuple[int, ...] = ()
    """Partitions that come after the first, where blocks are asked for."""
    share: Share | None = None
    """Of one partition's blocks."""
    generation: int = 0
    """Of all these partitions."""

    def encode(self) -> bytes:
        partitions = ",".join(map(str, (self.partition, *self.others)))
        form = "/blocks" if self.blocks else ""
        share = f"/{self.share}" if self.share else ""
        generation = f".{self.generation}" if self.generation else ""
        return f"{self.shuffle}/{partitions}/{self.epoch}{generation}{form}{share}".encode()


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


def decode_block_stream(command: bytes) -> PutTarget:
    """The target of a stream of blocks."""
    stream = decode(command, BlockStream)
    return PutTarget(
        check_shuffle_id(stream.shuffle),
        check_attempt(stream.map_id, stream.attempt, stream.writer),
        None,
    )


def decode_put_path(path: list[bytes]) -> PutTarget:
    """The target of a plain client's stream: ``<shuffle>/<partition>/<map>/<attempt>``."""
    parts = _split(b"/".join(path), "a put descriptor")
    if len(parts) != 4:
        raise ProtocolError("a put descriptor is <shuffle>/<partition>/<map>/<attempt>")
    map_id, attempt = _number(parts[2]), _number(parts[3])
    return PutTarget(
        check_shuffle_id(parts[0]), check_attempt(map_id, attempt), _partition(parts[1])
    )


def decode_ticket(ticket: bytes) -> ReadTicket:
    """The parts of a ticket."""
    parts = _split(ticket, "a ticket")
    blocks = parts[3:4] == ["blocks"]
    share = _share(parts[4]) if blocks and len(parts) == 5 else None
    if len(parts) != 3 + blocks + (share is not None):
        raise ProtocolError(
            "a ticket is <shuffle>/<partition>/<epoch>, with /blocks for blocks, and then "
            "/<number>-of-<shares> for a share of them"
        )
    first, *others = map(_partition, parts[1].split(","))
    if others and not blocks:
        raise ProtocolError("several partitions are read as blocks only")
    if others and share:
        raise ProtocolError("a share is of one partition")
    epoch, dot, generation = parts[2].partition(".")
    return ReadTicket(
        check_shuffle_id(parts[0]),
        first,
        _number(epoch),
        blocks,
        tuple(others),
        share,
        _number(generation) if dot else 0,
    )


def decode_info_path(path: list[bytes]) -> tuple[str, int | None]:
    """The shuffle of a flight-info's descriptor, and the partition where one is named."""
    parts = _split(b"/".join(path), "an info descriptor")
    if len(parts) > 2:
        raise ProtocolError("an info descriptor is <shuffle> or <shuffle>/<partition>")
    return check_shuffle_id(parts[0]), _partition(parts[1]) if len(parts) == 2 else None


def _split(text: bytes, what: str) -> list[str]:
    if not 0 < len(text) <= 256:
        raise ProtocolError(f"{what} has 1 to 256 bytes, not {len(text)}")
    try:
        return text.decode("ascii").split("/")
    except UnicodeDecodeError as error:
        raise ProtocolError(f"{what} is ASCII text") from error


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise ProtocolError(f"{text[:32]!r} is not a number")
    return int(text)


def _share(text: str) -> Share:
    number, between, of = text.partition("-of-")
    share = Share(_number(number), _number(of))
    if not between or not share.number < share.of <= MAX_SHARES:
        raise ProtocolError(f"{text[:32]!r} is no share, <number>-of-<shares>, from 0")
    return share


def _partition(text: str) -> int:
    partition = _number(text)
    if partition >= MAX_PARTITIONS:
        raise ProtocolError(f"partition {partition}: a shuffle has at most {MAX_PARTITIONS}")
    return partition
