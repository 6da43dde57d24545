"""Descriptors and tickets of streams: they name the rows that are put or read.

The tickets in a flight-info follow Listing 3.2 of A. Ferretti, "Distributed
Arrow-based Shuffle Operation using Arrow Flight RPC" (2023).

The rows of a map reach a data server in one of two ways:

- As blocks, which is what our own writer sends. There is one stream per server
  under the command descriptor `BlockStream`. Each message is one block, and its
  ``app_metadata`` names the partition and the number of rows
  (see `mrflight.shuffle.wire.block`).
- As record batches from a plain Flight client in any language. There is one
  stream per partition under the path descriptor
  ``<shuffle>/<partition>/<map>/<attempt>``.

``<shuffle>`` is the id of the shuffle, or ``<id>:<token>``. A cluster that knows its callers wants
the token. The tickets that it gives contain it.

A ticket is ``<shuffle>/<partition>/<epoch>`` and is answered with record batches.
With ``/blocks`` at the end it is answered with blocks, and can then name several
partitions, ``<shuffle>/7,8,9/<epoch>/blocks``, whose blocks come one partition after
the other, or a slice of one partition, ``<shuffle>/7/<epoch>/blocks/2-of-5``, counted
from 0 (see `PartitionSlice`). With ``/over-<key>`` behind that, blocks in shared
memory are passed over the channel with this key (see
`mrflight.shuffle.wire.shared_blocks`). The epoch is ``<epoch>.<generation>`` if the
partition was lost and written again. `mrflight.ids` explains epochs and generations.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, NamedTuple

import msgspec

from mrflight.errors import ProtocolError
from mrflight.ids import (
    MAX_PARTITIONS,
    MapAttempt,
    ShuffleKey,
    check_attempt,
    check_shuffle_id,
)
from mrflight.shuffle.wire.protocol import Message, decode

MAX_SLICES = 2**16

_MAX_BYTES = 384
_OVER = "over-"
_KEY = re.compile(r"[0-9a-f]{32}")

ChannelKey = Annotated[str, msgspec.Meta(pattern=r"\A(?:[0-9a-f]{32})?\Z")]
"""The key, in hexadecimal, of the channel of a stream whose blocks are passed in shared memory;
empty for a stream without one. See `mrflight.shuffle.wire.shared_blocks`."""


class PartitionSlice(NamedTuple):
    """One of ``of`` slices of a partition that is too large for one reader; counted from 0.

    A slice is a run of the partition's blocks in input order. Every server that holds the
    partition cuts it in the same way, because the cut depends only on what never changes: the
    blocks of the attempts that an epoch names, their order, and their sizes.
    """

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}-of-{self.of}"


def in_slice(sizes: Iterable[int], total: int, partition_slice: PartitionSlice) -> Iterator[bool]:
    """Yield for each block whether it is in the slice; slices differ by less than a block.

    ``sizes`` are the sizes of the blocks in their order, and ``total`` is their sum.
    """
    number, of = partition_slice
    start = 0
    for size in sizes:
        middle = 2 * start + size
        found = middle * of // (2 * total) if total else 0
        yield min(found, of - 1) == number  # there may be blocks without bytes at the end
        start += size


class BlockStream(Message, frozen=True, omit_defaults=True):
    """The command descriptor of a DoPut of blocks: the attempt and writer that send them."""

    shuffle: str
    map_id: int
    attempt: int
    writer: str = ""
    token: str = ""
    """The shuffle's token: see `mrflight.ids`."""
    channel: ChannelKey = ""
    wants_answer: bool = False
    """Whether the server sends an empty message before it takes the first block. A put that ends
    before that may be begun again."""

    def encode(self) -> bytes:
        return msgspec.json.encode(self)


class PutTarget(msgspec.Struct, frozen=True):
    """The decoded descriptor of a DoPut; ``partition`` is None if each block names its own."""

    shuffle: str
    source: MapAttempt
    partition: int | None
    token: str = ""
    channel: ChannelKey = ""
    wants_answer: bool = False


class ReadTicket(msgspec.Struct, frozen=True):
    """The decoded ticket of a DoGet."""

    shuffle: ShuffleKey
    partition: int
    epoch: int
    blocks: bool = False
    others: tuple[int, ...] = ()
    """Partitions that follow the first one, in a ticket for blocks."""
    partition_slice: PartitionSlice | None = None
    """The slice of the only partition that is read; None for all of it."""
    generation: int = 0
    """The generation of all these partitions."""
    channel: ChannelKey = ""

    def encode(self) -> bytes:
        partitions = ",".join(map(str, (self.partition, *self.others)))
        generation = f".{self.generation}" if self.generation else ""
        form = "/blocks" if self.blocks else ""
        which = f"/{self.partition_slice}" if self.partition_slice else ""
        over = f"/over-{self.channel}" if self.channel else ""
        return f"{self.shuffle}/{partitions}/{self.epoch}{generation}{form}{which}{over}".encode()


def decode_block_stream(command: bytes) -> PutTarget:
    """Return the target of a stream of blocks."""
    stream = decode(command, BlockStream)
    return PutTarget(
        check_shuffle_id(stream.shuffle),
        check_attempt(stream.map_id, stream.attempt, stream.writer),
        None,
        stream.token,
        stream.channel,
        stream.wants_answer,
    )


def decode_put_path(path: list[bytes]) -> PutTarget:
    """Return the target of a plain client's stream: ``<shuffle>/<partition>/<map>/<attempt>``."""
    parts = _split(b"/".join(path), "a put descriptor")
    if len(parts) != 4:
        raise ProtocolError("a put descriptor must be <shuffle>/<partition>/<map>/<attempt>")
    map_id, attempt = _number(parts[2]), _number(parts[3])
    key = ShuffleKey.parse(parts[0])
    source = check_attempt(map_id, attempt)
    return PutTarget(key.id, source, _partition(parts[1]), key.token)


def decode_ticket(ticket: bytes) -> ReadTicket:
    """Return the parts of a ticket."""
    parts = _split(ticket, "a ticket")
    blocks = parts[3:4] == ["blocks"]
    channel = _channel(parts.pop()) if blocks and parts[-1].startswith(_OVER) else ""
    partition_slice = _slice(parts[4]) if blocks and len(parts) == 5 else None
    if len(parts) != 3 + blocks + (partition_slice is not None):
        raise ProtocolError(
            "a ticket must be <shuffle>/<partition>/<epoch>, with /blocks appended to get blocks, "
            "then /<number>-of-<slices> to get a slice of them, and then /over-<key> to get them "
            "over a channel"
        )
    first, *others = map(_partition, parts[1].split(","))
    if others and not blocks:
        raise ProtocolError("a ticket for several partitions must ask for blocks")
    if others and partition_slice:
        raise ProtocolError("a ticket for a slice must name one partition")
    epoch, dot, generation = parts[2].partition(".")
    return ReadTicket(
        ShuffleKey.parse(parts[0]),
        first,
        _number(epoch),
        blocks,
        tuple(others),
        partition_slice,
        _number(generation) if dot else 0,
        channel,
    )


def decode_info_path(path: list[bytes]) -> tuple[ShuffleKey, int | None]:
    """Return the shuffle in a flight-info's descriptor, and the partition if it names one."""
    parts = _split(b"/".join(path), "an info descriptor")
    if len(parts) > 2:
        raise ProtocolError("an info descriptor must be <shuffle> or <shuffle>/<partition>")
    return ShuffleKey.parse(parts[0]), _partition(parts[1]) if len(parts) == 2 else None


def _split(text: bytes, what: str) -> list[str]:
    if not 0 < len(text) <= _MAX_BYTES:
        raise ProtocolError(f"{what} must have 1 to {_MAX_BYTES} bytes, not {len(text)}")
    try:
        return text.decode("ascii").split("/")
    except UnicodeDecodeError as error:
        raise ProtocolError(f"{what} must be ASCII text") from error


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise ProtocolError(f"{text[:32]!r} is not a number")
    return int(text)


def _channel(text: str) -> ChannelKey:
    key = text.removeprefix(_OVER)
    if not _KEY.fullmatch(key):
        raise ProtocolError(f"{text[:48]!r} is not a channel, over-<key of 32 hexadecimal digits>")
    return key


def _slice(text: str) -> PartitionSlice:
    number, between, of = text.partition("-of-")
    found = PartitionSlice(_number(number), _number(of))
    if not between or not found.number < found.of <= MAX_SLICES:
        raise ProtocolError(f"{text[:32]!r} is not a slice, <number>-of-<slices>, counted from 0")
    return found


def _partition(text: str) -> int:
    partition = _number(text)
    if partition >= MAX_PARTITIONS:
        raise ProtocolError(
            f"partition {partition}: a shuffle has at most {MAX_PARTITIONS} partitions"
        )
    return partition
