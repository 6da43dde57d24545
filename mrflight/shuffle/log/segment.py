"""A segment: a file with the frames of consecutive rows of an event log."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import xxhash

from mrflight.errors import EventLogDamagedError, EventLogWriteError
from mrflight.shuffle.log.frame import (
    Buffer,
    Frame,
    FrameKind,
    decode_frame,
    frames_behind,
    joined,
)
from mrflight.system.closeable import Closeable
from mrflight.system.positioned_write import write_all

SUFFIX = ".segment"
_INDEX_EVERY_BYTES = 64 * 2**10
_READ_BYTES = 2**20
_MAX_MARK = 2**63 - 1


def segment_name(first: int) -> str:
    """Return the file name of the segment whose first row has this offset."""
    return f"{first:020d}{SUFFIX}"


class Segment(Closeable):
    """One file, which is written at its end and read from any frame. Writes are by one thread.

    Readers only see what `append` was given before: they stop at ``size``.
    """

    def __init__(self, path: Path, first: int) -> None:
        self.path = path
        self.first = first
        self.end = first
        """The offset behind the last row."""
        self.size = 0
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._offsets: list[int] = []
        self._positions: list[int] = []
        self._chain = 0
        """The hash of the heads of all frames, in which are the hashes of their rows."""
        self._chains: list[int] = []
        """What it was before each frame of the index."""

    def append(self, frames: Sequence[Frame]) -> None:
        """Write frames at the end; they are durable after `sync`.

        Raises EventLogWriteError if the disk does not take them; the file is then as before.
        """
        encoded = [frame.encode() for frame in frames]
        pieces = [memoryview(piece) for each in encoded for piece in each]
        try:
            write_all(self._file, self.size, pieces)
        except OSError as error:
            with suppress(OSError):  # recovery cuts off what is too much
                os.ftruncate(self._file, self.size)
            raise EventLogWriteError(
                f"{self.path} cannot be written: {error}; make room on its disk, and append again"
            ) from error
        for frame, (head, _) in zip(frames, encoded, strict=True):
            self._note(frame, self.size, head)

    def sync(self) -> None:
        """Wait until all that was written is on the disk; raises OSError."""
        os.fdatasync(self._file)

    def recover(self, *, is_last: bool) -> list[Frame]:
        """Read a file that exists, and return its frames without their payloads.

        They are on the disk then: the last group is written and synced again, as nothing tells
        whether it was before, nor whether what is read is on the disk or only in the memory of the
        system, which forgets that a write has failed. Raises OSError if that fails.

        The end of the last segment may be a group that was never acknowledged and is cut short. It
        is cut off, and so is a last group that was damaged later: they look the same. Raises
        EventLogDamagedError for any other damage.
        """
        data = memoryview(self.path.read_bytes())
        at, frames, starts = 0, [], []
        while (frame := decode_frame(data, at)) is not None:
            if frame.offset != self.end or (at == 0) != (frame.kind is FrameKind.SEGMENT_START):
                raise self._damage(at, f"a frame of offset {frame.offset} follows {self.end}")
            self._note(frame, at, _head(data[at:], frame))
            starts.append(at)
            at += frame.size
            is_start = frame.kind is FrameKind.SEGMENT_START
            frames.append(frame if is_start else frame._replace(payload=b""))
        if at < len(data):
            later = max((frame.durable for frame in frames_behind(data, at)), default=0)
            if not is_last or later > self.end:
                raise self._damage(at, "rows that were acknowledged are not readable")
            os.ftruncate(self._file, at)
        if is_last and frames:
            group = next(n for n, each in enumerate(frames) if each.offset >= frames[-1].durable)
            write_all(self._file, starts[group], [data[starts[group] : at]])
            self.sync()
        return frames

    def _damage(self, at: int, problem: str) -> EventLogDamagedError:
        return EventLogDamagedError(
            f"{self.path} is damaged at byte {at}: {problem}; put an undamaged copy in its place, "
            "or drop the log"
        )

    def _note(self, frame: Frame, position: int, head: Buffer) -> None:
        if not self._positions or position - self._positions[-1] >= _INDEX_EVERY_BYTES:
            self._chains.append(self._chain)
            self._positions.append(position)
            self._offsets.append(frame.offset)
        self._chain = xxhash.xxh3_64_intdigest(head, seed=self._chain)
        self.end, self.size = frame.stop, position + frame.size

    def mark(self, offset: int) -> int:
        """Return what tells the rows before ``offset``, the last of which is here, from others.

        It is a hash of all frames of the segment up to that row, from 1 to 2^63 - 1.
        """
        found = bisect_left(self._offsets, offset) - 1
        start, chain = self._positions[found], self._chains[found]
        later = self._positions[found + 1 : found + 2]
        with self.path.open("rb", buffering=0) as file:
            file.seek(start)
            data, at = memoryview(file.read((later[0] if later else self.size) - start)), 0
        while (frame := decode_frame(data, at)) is not None:
            chain = xxhash.xxh3_64_intdigest(_head(data[at:], frame), seed=chain)
            if frame.stop >= offset:
                return chain & _MAX_MARK or 1
            at += frame.size
        raise self._damage(start + at, "a frame is not readable")

    def read(self, start: int) -> Iterator[Frame]:
        """Yield the frames of rows that end behind ``start``, up to what is written now.

        It opens a file of its own, so that the segment may be deleted meanwhile.
        """
        size = self.size
        found = bisect_right(self._offsets, start) - 1
        position = self._positions[max(0, found)] if self._positions else 0
        with self.path.open("rb", buffering=_READ_BYTES) as file:
            file.seek(position)
            yield from self._frames(file.read, size - position, start)

    def _frames(self, read: Callable[[int], bytes], left: int, start: int) -> Iterator[Frame]:
        data = memoryview(b"")
        while left or len(data):
            frame = decode_frame(data, 0)
            if frame is None:
                more = read(min(left, max(_READ_BYTES, len(data))))
                if not more:
                    raise EventLogDamagedError(
                        f"{self.path} has a frame that cannot be read, at its offset {start} or "
                        "after it; read from a replica, or put an undamaged copy in its place"
                    )
                left -= len(more)
                data = memoryview(b"".join((data, more)))
                continue
            if frame.kind is FrameKind.ROWS and frame.stop > start:
                yield frame
            data = data[frame.size :]

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes of the file, in pieces that consist of whole frames."""
        frames: list[Frame] = []
        size = 0
        for frame in self._every_frame():
            frames.append(frame)
            size += frame.size
            if size >= _READ_BYTES:
                yield joined(frames)
                frames, size = [], 0
        if frames:
            yield joined(frames)

    def _every_frame(self) -> Iterator[Frame]:
        data, at = memoryview(self.path.read_bytes())[: self.size], 0
        while at < len(data):
            frame = decode_frame(data, at)
            if frame is None:
                raise self._damage(at, "a frame is not readable")
            yield frame
            at += frame.size

    def remove(self) -> None:
        """Delete the file."""
        self.close()
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _head(data: memoryview, frame: Frame) -> memoryview:
    """Return what is before the payload of the frame with which ``data`` begins."""
    return data[: frame.size - len(frame.payload)]
