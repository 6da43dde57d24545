"""What the descriptors and tickets of streams say: which rows are put, and which are got.

The tickets of a flight-info are those of Listing 3.2 of A. Ferretti,
"Distributed Arrow-based Shuffle Operation using Arrow Flight RPC" (2023).

A map's rows reach a data server in one of two ways:

- blocks, as our own writer sends them: one stream per server under the
  command descriptor `BlockStream`; each message is one block as bytes, tagged
  with its partition and rows in ``app_metadata`` (see `mrflight.shuffle.wire.block`);
- record batches, from a plain Flight client in any language: one stream per
  partition under the path descriptor ``<shuffle>/<partition>/<map>/<attempt>``.

A ticket is ``<shuffle>/<partition>/<epoch>``, answered with record batches; with
``/blocks`` behind it, with blocks. Then the partition may be several,
``<shuffle>/7,8,9/<epoch>/blocks``, whose blocks come one partition after the
other, or a share of one, ``<shuffle>/7/<epoch>/blocks/2-of-5``, counted from 0
(see `mrflight.shuffle.wire.partition_slice`). The epoch says how many map attempts had been
committed when the ticket was made: the reader gets those, whatever comes later.
Of a partition that was lost and written again it is ``<epoch>.<generation>``
(see `mrflight.shuffle.metadata.shuffle_state`).
"""

from __future__ import annotations

import msgspec

from mrflight.errors import ProtocolError
from mrflight.ids import MAX_PARTITIONS, MapAttempt, check_attempt, check_shuffle_id
from mrflight.shuffle.wire.partition_slice import MAX_SHARES, Share
from mrflight.shuffle.wire.protocol import Message, decode


class BlockStream(Message, frozen=True):
    """The command descriptor of a DoPut of blocks: whose they are."""

    shuffle: str
    map_id: int
    attempt: int
    writer: str = ""
    token: str = ""
    """Of the shuffle: see `mrflight.shuffle.wire.protocol.ShuffleDescription`."""

    def encode(self) -> bytes:
        return msgspec.json.encode(self)


class PutTarget(msgspec.Struct, frozen=True):
    """What a DoPut's descriptor says; ``partition`` None where each block is tagged."""

    shuffle: str
    source: MapAttempt
    partition: int | None
    token: str = ""


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


def decode_block_stream(command: bytes) -> PutTarget:
    """The target of a stream of blocks."""
    stream = decode(command, BlockStream)
    return PutTarget(
        check_shuffle_id(stream.shuffle),
        check_attempt(stream.map_id, stream.attempt, stream.writer),
        None,
        stream.token,
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
