"""Frames: what a segment of an event log consists of, and what an owner sends to its replicas.

A frame is a header, the hash of it, the producer's id, and the payload::

    magic  kind  length of the producer's id  -  rows  length of the payload
    offset  durable offset  sequence  hash of the payload
    hash of all this and of the producer's id
    the producer's id
    the payload

A frame of rows has the Arrow IPC message of a record batch as its payload. A segment begins with a
frame of its own kind, see `SegmentStart`. The durable offset says up to where the log was
acknowledged when the frame was written, so that a reader of a damaged file knows whether what is
damaged may have been acknowledged.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Annotated, NamedTuple

import msgspec
import pyarrow as pa
import xxhash

from mrflight.errors import EventLogDamagedError, ProtocolError
from mrflight.units import format_bytes

MAX_PAYLOAD_BYTES = 64 * 2**20
"""The size of one append. A client that has more makes several batches of it."""
MAX_ROWS = 2**24
"""The rows of one append: a column of nulls has no bytes that would limit them."""
MAX_PRODUCER_BYTES = 64
NO_SEQUENCE = -1

_MAGIC = b"mrfL"
_HEADER = struct.Struct("<4sBBxxIIQQqQ")
_HASH = struct.Struct("<Q")
_START = _HEADER.size + _HASH.size

Buffer = bytes | memoryview


class FrameKind(IntEnum):
    """What a frame holds."""

    ROWS = 0
    SEGMENT_START = 1


class Frame(NamedTuple):
    """The rows ``offset`` to ``stop`` of a log, or the start of a segment there."""

    offset: int
    rows: int
    payload: Buffer
    producer: str = ""
    sequence: int = NO_SEQUENCE
    durable: int = 0
    """The log was acknowledged up to here when the frame was written."""
    kind: FrameKind = FrameKind.ROWS
    known_hash: int | None = None
    """The hash of the payload, if it was computed before; recovery keeps it without the payload."""

    @property
    def payload_hash(self) -> int:
        """The hash of the payload."""
        return hash_payload(self.payload) if self.known_hash is None else self.known_hash

    @property
    def stop(self) -> int:
        """The offset behind its last row."""
        return self.offset + self.rows

    @property
    def size(self) -> int:
        """Its bytes in a file."""
        return _START + len(self.producer) + len(self.payload)

    def encode(self) -> list[Buffer]:
        """Return its bytes, in pieces."""
        producer = self.producer.encode("ascii")
        header = _HEADER.pack(
            _MAGIC,
            self.kind,
            len(producer),
            self.rows,
            len(self.payload),
            self.offset,
            self.durable,
            self.sequence,
            self.payload_hash,
        )
        head = header + _HASH.pack(xxhash.xxh3_64_intdigest(header + producer)) + producer
        return [head, self.payload]


class StoredBatch(NamedTuple):
    """A batch of a producer: its sequence number, its rows in the log, and the hash of these."""

    sequence: int
    start: int
    rows: int
    payload_hash: int | None = None
    """None in the starts of segments that were written before these had it."""

    def is_same(self, other: StoredBatch) -> bool:
        """Return whether a batch of the same number has the same rows, wherever they are."""
        known = self.payload_hash is not None and other.payload_hash is not None
        return self.rows == other.rows and (not known or self.payload_hash == other.payload_hash)


class SegmentStart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The payload of the frame at the start of a segment: all that recovery needs from before."""

    schema: bytes
    """The Arrow IPC schema message of all rows of the log."""
    producers: list[
        tuple[Annotated[str, msgspec.Meta(max_length=MAX_PRODUCER_BYTES)], list[StoredBatch]]
    ]
    """The producers in the order of their last batches, with the last batches of each."""

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @classmethod
    def decode(cls, payload: Buffer) -> SegmentStart:
        """Return the start in a frame's payload; raise EventLogDamagedError if it is none."""
        try:
            return msgspec.msgpack.decode(payload, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise EventLogDamagedError(f"the start of a segment is not valid: {error}") from error

    def arrow_schema(self) -> pa.Schema:
        """Return the schema of the rows; raise EventLogDamagedError if there is none."""
        try:
            return pa.ipc.read_schema(pa.py_buffer(self.schema))
        except (pa.ArrowException, OSError) as error:
            raise EventLogDamagedError(f"the schema of a segment is not valid: {error}") from error


def hash_payload(payload: Buffer) -> int:
    """Return the hash that a frame has of its payload."""
    return xxhash.xxh3_64_intdigest(payload)


def decode_frame(data: memoryview, at: int) -> Frame | None:
    """Return the frame that begins at ``at``; None if there is none, or it is cut or damaged."""
    if at + _START > len(data):
        return None
    header = data[at : at + _HEADER.size]
    magic, kind, producer_bytes, rows, payload_bytes, *numbers, payload_hash = _HEADER.unpack(
        header
    )
    if magic != _MAGIC or payload_bytes > MAX_PAYLOAD_BYTES or kind not in (0, 1):
        return None
    start = at + _START + producer_bytes
    if start + payload_bytes > len(data):
        return None
    producer = bytes(data[at + _START : start])
    (found,) = _HASH.unpack_from(data, at + _HEADER.size)
    payload = data[start : start + payload_bytes]
    if found != xxhash.xxh3_64_intdigest(bytes(header) + producer) or not producer.isascii():
        return None
    if payload_hash != hash_payload(payload):
        return None
    offset, durable, sequence = numbers
    name = producer.decode()
    return Frame(offset, rows, payload, name, sequence, durable, FrameKind(kind), payload_hash)


def decode_frames(data: Buffer) -> list[Frame]:
    """Return the frames that another server sent; raise ProtocolError if they are not whole."""
    view, at, frames = memoryview(data), 0, []
    while at < len(view):
        frame = decode_frame(view, at)
        if frame is None:
            raise ProtocolError("frames for a replica of an event log are cut or damaged")
        frames.append(frame)
        at += frame.size
    return frames


def frames_behind(data: memoryview, at: int) -> Iterator[Frame]:
    """Yield the whole frames that begin behind ``at``, where a frame is cut or damaged."""
    whole = data.obj if isinstance(data.obj, bytes) else bytes(data)
    found = whole.find(_MAGIC, at + 1)
    while found >= 0:
        frame = decode_frame(data, found)
        if frame is not None:
            yield frame
        found = whole.find(_MAGIC, found + (frame.size if frame is not None else 1))


def joined(frames: Sequence[Frame]) -> bytes:
    """Return the bytes of frames, one after the other."""
    return b"".join(piece for frame in frames for piece in frame.encode())


def serialize(batch: pa.RecordBatch) -> bytes:
    """Return a batch as the payload of a frame; raise ProtocolError if it is too large."""
    check_size(batch.nbytes)
    payload: bytes = batch.serialize().to_pybytes()
    check_size(len(payload))
    return payload


def check_size(size: int) -> None:
    """Raise ProtocolError for a batch of so many bytes if that is too large for one append."""
    if size > MAX_PAYLOAD_BYTES:
        raise ProtocolError(
            f"a batch of an event log has {format_bytes(size)}, and may have "
            f"{format_bytes(MAX_PAYLOAD_BYTES)}; append it in several batches"
        )


def deserialize(payload: Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch of a payload; raise EventLogDamagedError if it has none of this schema."""
    try:
        return pa.ipc.read_record_batch(pa.py_buffer(payload), schema)
    except (pa.ArrowException, OSError) as error:
        raise EventLogDamagedError(f"a frame has no rows of its log's schema: {error}") from error
