"""The messages about the tail of a live stream: the rows that its table does not have yet.

A tail is ordered batches of rows for each source partition, each with the range of offsets
``[lo, hi)`` that it was made of. One feeder writes it, and who has a token of it reads it:

- ``DoPut`` under the path ``tail/<tail>:<token>/<epoch>``. Each message is a batch of one
  partition, whose ``app_metadata`` is a `TailRange`. The receipt, `TailPositions`, says with which
  offset the tail goes on in each partition, also if a message was not taken.
- ``DoGet`` with a `TailRead` as its ticket. The ``app_metadata`` of the first message, which has no
  rows, is a `TailAnswer`, and that of each other one a `TailRange`.

A tail has two tokens. Its stream chooses one, with which it is fed, trimmed, dropped and read. The
other one, `reader_token`, follows from that, and only reads; no tail is opened with it. A server
that does not know its callers takes calls without a token, too.

The last column of what is put may be `OFFSET_COLUMN`, the offset that each row comes from. Then the
batch can be cut at every offset, and otherwise only at its ends. Readers do not get the column.
The rows of a stream that merges are changes: `DELETED_COLUMN` says which of them delete a row.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Annotated, NamedTuple

import msgspec

from mrflight.errors import ProtocolError
from mrflight.ids import derived_token
from mrflight.shuffle.wire.protocol import Int64, Message, decode

OFFSET_COLUMN = "_mrflight_offset"
DELETED_COLUMN = "_mrflight_deleted"
MAX_WAIT_S = 30.0
"""The longest that a server lets a reader wait."""

_PATH = b"tail"
_MAX_TICKET_BYTES = 2**20

TailId = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9._-]{1,150}\Z")]
PartitionName = Annotated[str, msgspec.Meta(max_length=512)]
"""``<cluster>/<topic>/<topic id>/<number>``. Topics of Kafka have names of at most 249."""
Offsets = dict[PartitionName, Int64]
"""Offsets by source partition."""


class TailAction(StrEnum):
    """The actions of a data server that are about tails."""

    OPEN_TAIL = "open_tail"
    TRIM_TAIL = "trim_tail"
    DROP_TAIL = "drop_tail"


def reader_token(token: str) -> str:
    """Return the token that lets its holder read a tail, and do nothing else with it."""
    said = b"mrflight reader of a tail\0" + token.encode()
    return derived_token(hashlib.sha256(said).hexdigest())


class OpenTail(Message, frozen=True):
    """Begin or go on to feed a tail; a feeder with a lower ``epoch`` is refused from now on.

    The answer is `TailPositions`. A tail that is begun has the ``token`` of this call.
    """

    tail: TailId
    epoch: int
    starts: Offsets
    """Where the partitions begin that the tail does not have: the next offsets of the table, or
    those of the stream's first events."""
    recorded: list[str] = msgspec.field(default_factory=list)
    """The partitions of which the table has recorded an offset."""
    ready_at: Offsets = msgspec.field(default_factory=dict)
    """Nothing is read before the tail has come so far, as an earlier tail may have been read."""
    token: str = ""


class TailName(Message, frozen=True):
    """Name a tail."""

    tail: TailId
    token: str = ""


class TrimTail(Message, frozen=True):
    """Say what the table has recorded, as was read from its log. The answer is `TailPositions`."""

    tail: TailId
    recorded: Offsets
    token: str = ""


class TailRange(Message, frozen=True):
    """The partition and the range of offsets of a batch."""

    partition: str
    lo: Int64
    hi: Int64


class TailPositions(Message, frozen=True):
    """With which offset the tail goes on in each partition."""

    next: Offsets


class TailRead(Message, frozen=True, omit_defaults=True):
    """The ticket of the rows from the offsets of a version of the table on."""

    tail: TailId
    since: Offsets = msgspec.field(default_factory=dict)
    """The next offsets that the table has recorded in the version that is read."""
    until: Offsets | None = None
    """Where to end, as an earlier answer says; None for everything that is there."""
    at_least: Offsets = msgspec.field(default_factory=dict)
    """The answer waits until the tail, or the table, has come so far."""
    wait_s: float = 0.0
    """How long the answer may wait."""
    pin_s: float = 0.0
    """For how long the rows are kept, even if the table has them meanwhile."""
    token: str = ""
    """The token of the tail, or its `reader_token`."""

    def encode(self) -> bytes:
        return msgspec.json.encode(self)


class TailAnswer(Message, frozen=True):
    """How far an answer goes: up to the ``watermark``, which no row has reached."""

    watermark: Offsets


class TailPut(NamedTuple):
    """The target of a DoPut."""

    tail: str
    epoch: int
    token: str = ""

    @property
    def path(self) -> list[bytes]:
        named = f"{self.tail}:{self.token}" if self.token else self.tail
        return [_PATH, named.encode(), str(self.epoch).encode()]


def is_tail_path(path: list[bytes] | None) -> bool:
    """Return whether the descriptor of a DoPut names a tail, and not a shuffle."""
    return path is not None and len(path) == 3 and path[0] == _PATH


def decode_tail_path(path: list[bytes]) -> TailPut:
    """Return the target of a DoPut; raise ProtocolError if it is malformed."""
    try:
        _, named, epoch = (part.decode("ascii") for part in path)
        tail, _, token = named.partition(":")
        return TailPut(tail, int(epoch), token)
    except ValueError as error:
        raise ProtocolError("a put to a tail has the path tail/<tail>:<token>/<epoch>") from error


def is_tail_ticket(ticket: bytes) -> bool:
    """Return whether the ticket of a DoGet is for a tail, and not for a shuffle."""
    return ticket[:1] == b"{"


def decode_tail_ticket(ticket: bytes) -> TailRead:
    """Return the request of a ticket; raise ProtocolError if it is malformed."""
    if len(ticket) > _MAX_TICKET_BYTES:
        raise ProtocolError(f"a ticket must have at most {_MAX_TICKET_BYTES} bytes")
    return decode(ticket, TailRead)
