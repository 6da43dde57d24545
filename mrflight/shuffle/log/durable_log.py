"""An event log on a disk: its segments, its schema, its producers."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from mrflight.errors import EventLogDamagedError, EventLogWriteError, OffsetTrimmedError
from mrflight.shuffle.log.frame import NO_SEQUENCE, Frame, FrameKind, SegmentStart, StoredBatch
from mrflight.shuffle.log.producers import Producers
from mrflight.shuffle.log.segment import SUFFIX, Segment, segment_name
from mrflight.system.closeable import Closeable

SEGMENT_BYTES = 64 * 2**20
NO_MARK = 0
"""The mark of an offset whose row before it is not kept."""


class DurableLog(Closeable):
    """The rows ``low`` to ``high`` of one log, in a folder of their own.

    One thread appends and syncs. Any thread reads, up to an offset that it was told, and trims.
    What is appended counts once it is synced: before that, neither ``high`` nor the producers know
    of it. Raises EventLogDamagedError if the folder holds rows that were acknowledged and cannot
    be read.
    """

    def __init__(self, folder: Path, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.folder = folder
        self.schema: pa.Schema | None = None
        """That of the first batch; None before it."""
        self.producers = Producers()
        self._segment_bytes = segment_bytes
        self._lock = threading.Lock()
        self._segments: list[Segment] = []
        self._high = 0
        self._unsynced: list[Frame] = []
        self._broken = ""
        self._new_at = -1
        """The first offset of a segment whose name is not durable yet."""
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        try:
            self._recover()
        except OSError as error:
            self.close()
            raise EventLogWriteError(
                f"the event log in {folder} cannot be read back: {error}; look at the disk"
            ) from error
        except BaseException:
            self.close()
            raise

    @property
    def low(self) -> int:
        """The offset of the first row that is kept."""
        with self._lock:
            return self._segments[0].first if self._segments else 0

    @property
    def high(self) -> int:
        """The offset behind the last row that is on the disk."""
        return self._high

    @property
    def size_bytes(self) -> int:
        """The bytes of all segments."""
        with self._lock:
            return sum(segment.size for segment in self._segments)

    @property
    def needs_segment(self) -> bool:
        """Whether the next append must begin with the start of a segment."""
        return not self._segments or self._segments[-1].size >= self._segment_bytes

    def segment_start(self, schema: pa.Schema) -> Frame:
        """Return the frame with which the next segment begins."""
        start = SegmentStart(schema.serialize().to_pybytes(), self.producers.all())
        return Frame(self.high, 0, start.encode(), kind=FrameKind.SEGMENT_START)

    def append(self, frames: Sequence[Frame]) -> None:
        """Write frames; they are durable after `sync`.

        Raises EventLogWriteError if they are not stored, and the log is then as it was. Raises
        EventLogDamagedError if they do not follow the rows that there are.
        """
        self.check_writable()
        self._check_order(frames)
        is_new = frames[0].kind is FrameKind.SEGMENT_START
        segment = self._new_segment(frames[0].offset) if is_new else self._segments[-1]
        try:
            segment.append(frames)
        except EventLogWriteError:
            if is_new:
                segment.remove()
            raise
        if is_new:
            with self._lock:
                self._segments.append(segment)
        self._unsynced += frames

    def sync(self) -> None:
        """Wait until all that was appended is on the disk.

        Raises EventLogWriteError if that fails. What the disk holds is then unknown, and a second
        sync would not tell: the system reports an error once, and forgets what it has not written.
        So nothing more is written before the log is opened again, which reads it back.
        """
        self.check_writable()
        try:
            self._segments[-1].sync()
            if self._segments[-1].first == self._new_at:
                self._sync_names()
                self._new_at = -1
        except OSError as error:
            self._broken = str(error)
            self.check_writable()
        synced, self._unsynced = self._unsynced, []
        self._note(synced)

    def last_sequence(self, producer: str, stop: int) -> int:
        """Return the number of a producer's last batch below ``stop``; -1 if there is none.

        Any thread may ask.
        """
        with self._lock:
            recent = self.producers.recent(producer)
        below = [batch.sequence for batch in recent if batch.start + batch.rows <= stop]
        if below or not recent:
            return below[-1] if below else NO_SEQUENCE
        return recent[0].sequence - 1  # it is not remembered any more

    def mark(self, offset: int) -> int:
        """Return a number that tells the rows before an offset from others that may take it.

        All replicas have the same. It is `NO_MARK` if the row before the offset is not there.
        """
        with self._lock:
            found = [each for each in self._segments if each.first < offset <= each.end]
        if not found or offset > self._high:
            return NO_MARK
        try:
            return found[0].mark(offset)
        except FileNotFoundError:  # it has just been trimmed
            return NO_MARK

    def read(self, start: int, stop: int) -> Iterator[Frame]:
        """Yield the frames that hold rows from ``start`` to ``stop``.

        The first and the last may hold others as well. Raises OffsetTrimmedError if the first rows
        have been trimmed.
        """
        with self._lock:
            segments = [each for each in self._segments if each.end > start and each.first < stop]
            low = self._segments[0].first if self._segments else 0
        if start < low and start < stop:
            raise OffsetTrimmedError(
                f"row {start} of the event log has been trimmed; the first that is kept is {low}"
            )
        for segment in segments:
            for frame in segment.read(start):
                if frame.offset >= stop:
                    return
                yield frame

    def trim(self, offset: int) -> int:
        """Delete the segments whose rows are all below ``offset``; return the first row kept."""
        with self._lock:
            # One that is not on the disk yet may be gone after a crash; the one before it stays.
            newest = -2 if self._segments and self._segments[-1].first == self._new_at else -1
            kept = [each for each in self._segments[:newest] if each.end > offset]
            kept += self._segments[newest:]
            gone = [each for each in self._segments if each not in kept]
            self._segments = kept
        for segment in gone:
            segment.remove()
        return self.low

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes of all segments, as a replica appends them."""
        for segment in list(self._segments):
            yield from segment.chunks()

    def remove(self) -> None:
        """Delete the log."""
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def close(self) -> None:
        for segment in self._segments:
            segment.close()

    def _new_segment(self, first: int) -> Segment:
        self._new_at = first
        try:
            return Segment(self.folder / segment_name(first), first)
        except OSError as error:
            raise EventLogWriteError(
                f"no segment can be made in {self.folder}: {error}; make room on its disk"
            ) from error

    def check_writable(self) -> None:
        """Raise EventLogWriteError if a sync has failed since the log was opened."""
        if self._broken:
            raise EventLogWriteError(
                f"the event log in {self.folder} cannot be written: a sync failed with "
                f"{self._broken}; look at the disk, and start the data server again"
            )

    def _check_order(self, frames: Sequence[Frame]) -> None:
        at = self._segments[-1].end if self._segments else frames[0].offset  # of a copy: anywhere
        for number, frame in enumerate(frames):
            is_start = frame.kind is FrameKind.SEGMENT_START
            is_misplaced = is_start if number else not (is_start or self._segments)
            if is_start:
                SegmentStart.decode(frame.payload).arrow_schema()
            if frame.offset != at or is_misplaced:
                raise EventLogDamagedError(
                    f"rows {frame.offset} of an event log were sent to follow row {at}"
                )
            at = frame.stop

    def _note(self, frames: Sequence[Frame]) -> None:
        """Count frames that are on the disk."""
        with self._lock:
            for frame in frames:
                if frame.kind is FrameKind.SEGMENT_START:
                    start = SegmentStart.decode(frame.payload)
                    self.schema = start.arrow_schema()
                    self.producers = Producers(start.producers)
                elif frame.sequence != NO_SEQUENCE:
                    written = frame.sequence, frame.offset, frame.rows, frame.payload_hash
                    self.producers.add(frame.producer, StoredBatch(*written))
                self._high = frame.stop

    def _recover(self) -> None:
        paths = sorted(self.folder.glob(f"*{SUFFIX}"))
        for path in paths:
            first = int(path.stem)
            if self._segments and first != self._high:
                raise EventLogDamagedError(
                    f"{self.folder} lacks rows {self.high} to {first} of its event log; put the "
                    "missing segment back, or drop the log"
                )
            segment = Segment(path, first)
            self._segments.append(segment)
            frames = segment.recover(is_last=path == paths[-1])
            if not frames:  # it was being made when the server ended, and holds nothing
                self._segments.pop().remove()
            self._note(frames)
        if self._segments:  # the last one may have been made just before the server ended
            self._sync_names()

    def _sync_names(self) -> None:
        _sync_folder(self.folder)
        _sync_folder(self.folder.parent)


def _sync_folder(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
