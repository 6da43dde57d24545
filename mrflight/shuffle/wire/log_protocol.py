"""The messages of event logs: rows that are durable when they are acknowledged.

A log has a name and a token, like a shuffle, and an id and rights of its own: see
`mrflight.shuffle.wire.log_rights`. It is on as many data servers as it has replicas.
One of them owns it. Rows are put to the owner under the path descriptor ``log/<name>``, where
``<name>`` is the id of the log or ``<id>:<token>``. Each message may have an `AppendTag` as its
``app_metadata``, and is answered by an `AppendReceipt` once its rows are durable.

The ticket ``log/<name>/<start>/<stop>`` reads rows; each message's ``app_metadata`` is the
`RowsTag` of its rows. A stop beyond the rows that there are stands for the end of the log.

An owner sends its frames to a replica under ``log/<name>/replica/<epoch>/<mode>``, where the mode
is ``follow``, or ``copy`` for a server that does not have the log yet.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, NamedTuple

import msgspec
import pyarrow as pa

from mrflight.errors import AccessDeniedError, ProtocolError
from mrflight.ids import ShuffleKey
from mrflight.shuffle.wire.log_rights import ALL_RIGHTS, LogId, LogRight, token_for
from mrflight.shuffle.wire.protocol import Location, Message, StoreId

MAX_REPLICAS = 8
MAX_OFFSET = 2**62

_ROOT = "log"
_MAX_BYTES = 384

REPLICA_SCHEMA = pa.schema([("frames", pa.large_binary())])
"""The schema of a stream to a replica. Each message has one row, of whole frames."""

Offset = Annotated[int, msgspec.Meta(ge=0, le=MAX_OFFSET)]
ProducerId = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9._-]{0,64}\Z")]


class CreateLog(Message, frozen=True):
    """Create an event log on ``replicas`` data servers."""

    name: str
    replicas: Annotated[int, msgspec.Meta(ge=1, le=MAX_REPLICAS)] = 1
    token: str = ""
    """A client that got no answer repeats the request with the same token, and gets the same
    log."""


class LogName(Message, frozen=True):
    """Name an event log."""

    name: str
    token: str = ""


class LogMember(Message, frozen=True):
    """A data server's folder of logs, and where it is reached now; empty if it is not."""

    store: StoreId
    location: Location = ""


class LogPlacement(Message, frozen=True):
    """Where an event log is."""

    name: str
    token: str
    replicas: int
    epoch: int
    """It grows when another server becomes the owner. Replicas refuse frames of an earlier one."""
    owner: StoreId
    members: list[LogMember]
    """The servers that hold every acknowledged row. Rows are acknowledged while there are
    ``replicas`` of them."""
    spares: list[LogMember] = msgspec.field(default_factory=list)
    """Servers that could become members, the least loaded first; none if none is needed."""
    lease_s: float = 10.0
    """An owner acknowledges nothing after so long without a heartbeat that was answered."""
    id: str = ""
    """A hash of the log's secret, which everybody may know."""
    rights: list[str] = msgspec.field(default_factory=list)
    """What may be done with ``token``, which is the one of the request; the log's secret if that
    had none."""

    @property
    def owner_location(self) -> str:
        """The location of the owner; empty if it cannot be reached."""
        return next((each.location for each in self.members if each.store == self.owner), "")

    @property
    def key(self) -> ShuffleKey:
        return ShuffleKey(self.name, self.token)

    @property
    def log(self) -> LogId:
        """The log as it is named in tables and messages."""
        return LogId(self.name, self.id)

    def handle(self, *rights: LogRight | str) -> str:
        """Return a handle with which others may only ``read``, ``append`` or ``drop``, or several.

        Without any it is that with all rights that this one has. Raises AccessDeniedError unless
        this is the placement of a log's maker, who has its secret.
        """
        if not rights:
            return str(self.key)
        if set(self.rights) != ALL_RIGHTS:
            raise AccessDeniedError(
                f"only the maker of event log {self.name!r} can make handles of it; ask there"
            )
        return str(
            ShuffleKey(self.name, token_for(self.token, [LogRight(each) for each in rights]))
        )


class ChangeLogMembers(Message, frozen=True):
    """Tell that members could not be reached, or that others hold the whole log now."""

    name: str
    epoch: int
    """That of the owner, which is the only one that may tell."""
    owner: StoreId
    remove: list[StoreId] = msgspec.field(default_factory=list)
    add: list[StoreId] = msgspec.field(default_factory=list)
    token: str = ""


class AppendTag(Message, frozen=True):
    """The ``app_metadata`` of an appended batch, for a producer whose retries must do no harm."""

    producer: ProducerId
    sequence: Offset
    """One more than that of the producer's batch before, also after a restart."""


class AppendReceipt(Message, frozen=True, omit_defaults=True):
    """The answer to one batch: the offsets of its rows, or else why they are not stored."""

    start: int = -1
    stop: int = -1
    error: str = ""
    """The name of an error of `mrflight.errors`. The stream ends with it."""
    message: str = ""


class RowsTag(Message, frozen=True):
    """The ``app_metadata`` of a batch that is read: the offset of its first row."""

    start: int


class LogStateRequest(Message, frozen=True):
    """Ask the owner of a log for its state."""

    name: str
    token: str = ""
    producer: ProducerId = ""
    offsets: Annotated[list[Offset], msgspec.Meta(max_length=4)] = msgspec.field(
        default_factory=list
    )
    """Those whose marks are asked for."""


class LogState(Message, frozen=True):
    """Which rows a log has, and what it knows of a producer."""

    low: int
    high: int
    """Rows below it are durable; the next one gets this offset at the earliest."""
    schema: bytes = b""
    """The Arrow IPC schema message; empty before the first batch."""
    last_sequence: int = -1
    """That of the producer's last batch; -1 if the log does not know the producer."""
    size_bytes: int = 0
    """The bytes of all rows that are kept."""
    marks: list[int] = msgspec.field(default_factory=list)
    """For each offset that was asked for, a number from 1 to 2^63 - 1 that tells the rows before it
    from others: it is another one if the log has lost rows, and others have got their offsets. It
    is 0 if the row before the offset is not kept, or not durable."""


class TrimLog(Message, frozen=True):
    """Delete the segments of a log whose rows are all below an offset."""

    name: str
    offset: Offset
    token: str = ""


class PinLog(Message, frozen=True):
    """Keep the rows from an offset on for a while, also if the log is trimmed.

    The answer is `Trimmed`. A pin is forgotten when its server ends.
    """

    name: str
    offset: Offset
    for_s: Annotated[float, msgspec.Meta(ge=0)]
    token: str = ""


class Trimmed(Message, frozen=True):
    """The offset of the first row that is kept."""

    low: int


class ReplicaMode(StrEnum):
    """What an owner sends to a replica."""

    FOLLOW = "follow"
    """The frames that follow those that the replica has."""
    COPY = "copy"
    """All frames. When the stream ends, they are the replica's log."""


class LogPut(NamedTuple):
    """The decoded descriptor of a put: of a producer, or of an owner to its replica."""

    key: ShuffleKey
    epoch: int = 0
    mode: ReplicaMode | None = None


class LogRead(NamedTuple):
    """The decoded ticket of a read."""

    key: ShuffleKey
    start: int
    stop: int

    def encode(self) -> bytes:
        return f"{_ROOT}/{self.key}/{self.start}/{self.stop}".encode()


def replica_path(key: ShuffleKey, epoch: int, mode: ReplicaMode) -> list[str]:
    """Return the descriptor's path of a put to a replica."""
    return [_ROOT, str(key), "replica", str(epoch), mode.value]


def put_path(key: ShuffleKey) -> list[str]:
    """Return the descriptor's path of a producer's put."""
    return [_ROOT, str(key)]


def decode_log_put(path: list[bytes]) -> LogPut | None:
    """Return what a put's path says if it is of a log; puts of shuffles have four parts."""
    parts = _parts(b"/".join(path))
    if parts is None or parts[0] != _ROOT or len(parts) not in (2, 5):
        return None
    key = ShuffleKey.parse(parts[1])
    if len(parts) == 2:
        return LogPut(key)
    if parts[2] != "replica" or parts[4] not in list(ReplicaMode):
        raise ProtocolError("a put to a replica is log/<name>/replica/<epoch>/follow, or /copy")
    return LogPut(key, _number(parts[3]), ReplicaMode(parts[4]))


def decode_log_ticket(ticket: bytes) -> LogRead | None:
    """Return what a ticket says if it is of a log: ``log/<name>/<start>/<stop>``.

    A ticket of a shuffle that is named ``log`` has a word as its fourth part, and no number.
    """
    parts = _parts(ticket)
    if parts is None or len(parts) != 4 or parts[0] != _ROOT or not parts[3].isdecimal():
        return None
    return LogRead(ShuffleKey.parse(parts[1]), _number(parts[2]), _number(parts[3]))


def _parts(text: bytes) -> list[str] | None:
    if len(text) > _MAX_BYTES or not text.isascii():
        return None
    return text.decode("ascii").split("/")


def _number(text: str) -> int:
    if not (text.isdecimal() and len(text) <= 19 and int(text) <= MAX_OFFSET):
        raise ProtocolError(f"{text[:32]!r} is not an offset or an epoch")
    return int(text)
