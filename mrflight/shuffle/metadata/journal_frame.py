"""How records lie in a journal: in frames, each of them what one sync made durable.

A frame is a header of 16 bytes, then its records, each behind its size (u32).
The header is the size of what follows (u32), its xxh3_64 (u64), and the xxh32
of these two (u32) with the frame's offset as the seed; all little-endian. The
header has a checksum of its own because a size that is wrong would make all
that follows look like the half of a frame that was never finished.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple

import xxhash

_SIZES = struct.Struct("<IQ")
_CHECK = struct.Struct("<I")
_RECORD = struct.Struct("<I")

HEADER_BYTES = _SIZES.size + _CHECK.size
MAX_RECORD_BYTES = 64 * 2**20
"""As large as a message of the protocol may be."""

MAX_FRAME_BYTES = HEADER_BYTES + _RECORD.size + MAX_RECORD_BYTES


class FrameHeader(NamedTuple):
    """The size of a frame's records in bytes, and what they hash to (xxh3_64, seed 0)."""

    size: int
    xxh3: int

    def fits(self, payload: bytes) -> bool:
        """Whether these are the bytes that were written."""
        return len(payload) == self.size and xxhash.xxh3_64_intdigest(payload) == self.xxh3


def framed_size(record: bytes) -> int:
    """How much a record adds to a frame, in bytes."""
    return _RECORD.size + len(record)


def encode_frame(offset: int, records: Sequence[bytes]) -> bytes:
    """The frame that is to lie at ``offset``."""
    payload = b"".join(part for record in records for part in (_RECORD.pack(len(record)), record))
    sizes = _SIZES.pack(len(payload), xxhash.xxh3_64_intdigest(payload))
    return b"".join((sizes, _CHECK.pack(_check(sizes, offset)), payload))


def decode_header(data: bytes, offset: int) -> FrameHeader | None:
    """The header that ``data`` begins with, of the frame at ``offset``; None where it is none."""
    if len(data) < HEADER_BYTES:
        return None
    sizes = data[: _SIZES.size]
    header = FrameHeader(*_SIZES.unpack(sizes))
    if header.size > MAX_FRAME_BYTES - HEADER_BYTES:
        return None
    (check,) = _CHECK.unpack_from(data, _SIZES.size)
    return header if check == _check(sizes, offset) else None


def read_frames(stream: BinaryIO, offset: int, end: int) -> Iterator[tuple[int, bytes]]:
    """The payloads of the frames from ``offset`` on, each with where its frame ends.

    Stops at ``end``, or before the first frame that is not whole.
    """
    stream.seek(offset)
    while offset < end:
        header = decode_header(stream.read(HEADER_BYTES), offset)
        if header is None or not header.fits(payload := stream.read(header.size)):
            return
        offset += HEADER_BYTES + header.size
        yield offset, payload


def is_unfinished(stream: BinaryIO, offset: int, end: int) -> bool:
    """Whether what follows ``offset``, which is no whole frame, is of one append at the most.

    A frame is begun when the one before is durable, so only the last can be unfinished.
    """
    stream.seek(offset)
    if header := decode_header(stream.read(HEADER_BYTES), offset):
        return offset + HEADER_BYTES + header.size >= end
    if end - offset > MAX_FRAME_BYTES:
        return False
    stream.seek(offset)
    return not _has_header_within(stream.read(), offset)


def records_of(payload: bytes) -> Iterator[bytes]:
    """The records of a frame whose payload is what was written."""
    position = 0
    while position < len(payload):
        (size,) = _RECORD.unpack_from(payload, position)
        position += _RECORD.size
        yield payload[position : position + size]
        position += size


def _has_header_within(data: bytes, offset: int) -> bool:
    """Whether there is a header anywhere but at the start of ``data``, which lies at ``offset``."""
    return any(
        decode_header(data[position : position + HEADER_BYTES], offset + position) is not None
        for position in range(1, len(data) - HEADER_BYTES + 1)
    )


def _check(sizes: bytes, offset: int) -> int:
    return xxhash.xxh32_intdigest(sizes, seed=offset & 0xFFFFFFFF)
