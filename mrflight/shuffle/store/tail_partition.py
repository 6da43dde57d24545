"""The rows of one source partition in a tail, by their ranges of offsets. It knows no locks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mrflight.errors import TailBehindError, TailTrimmedError
from mrflight.shuffle.store.received_batch import message_bytes
from mrflight.shuffle.wire.tail_protocol import OFFSET_COLUMN

MAX_BEHIND = 100_000
"""A tail that is further behind its table, in offsets, goes on where the table is."""


@dataclass(frozen=True)
class TailPiece:
    """The rows that the offsets from ``lo`` to ``hi``, without ``hi``, were made into."""

    lo: int
    hi: int
    rows: pa.RecordBatch
    offsets: npt.NDArray[np.int64] | None
    """The offset of each row; None if that is not known."""
    size_bytes: int

    @classmethod
    def of(cls, lo: int, hi: int, batch: pa.RecordBatch) -> TailPiece:
        """Return the piece of a batch, whose last column may be that of the offsets."""
        size = max(batch.nbytes, message_bytes(batch))  # the whole message is kept with its rows
        if not batch.num_columns or batch.schema.names[-1] != OFFSET_COLUMN:
            return cls(lo, hi, batch, None, size)
        offsets = batch.column(batch.num_columns - 1).to_numpy(zero_copy_only=False)
        return cls(lo, hi, batch.select(batch.schema.names[:-1]), offsets, size)

    def cuts_at(self, offset: int) -> bool:
        """Return whether the piece can be cut at an offset."""
        if self.offsets is not None or not self.rows.num_rows:
            return True
        return not self.lo < offset < self.hi

    def between(self, since: int, until: int) -> TailPiece:
        """Return the part of a range, at whose ends it can be cut."""
        lo, hi = max(self.lo, since), min(self.hi, until)
        if (lo, hi) == (self.lo, self.hi):
            return self
        if self.offsets is None:
            return TailPiece(lo, hi, self.rows, None, self.size_bytes)
        first, last = np.searchsorted(self.offsets, [lo, hi])
        rows = self.rows.slice(int(first), int(last - first))
        return TailPiece(lo, hi, rows, self.offsets[first:last], self.size_bytes)


class TailPartition:
    """The pieces of a partition, without a gap from ``low`` to ``next``."""

    def __init__(self, start: int, ready_at: int | None, *, is_first: bool = True) -> None:
        """``is_first``: the stream has nothing before ``start``."""
        self.low = self.next = start
        self._first = start if is_first else None
        self.ready_at = start if ready_at is None else ready_at
        """Readers wait until the partition has come so far, or its table has."""
        self.recorded = -1
        """The next offset that the table has, as far as it was said; -1 if it was not."""
        self._pieces: deque[TailPiece] = deque()
        self._commits: deque[tuple[float, int]] = deque()

    @property
    def size_bytes(self) -> int:
        """The bytes of all pieces."""
        return sum(piece.size_bytes for piece in self._pieces)

    def append(self, piece: TailPiece) -> TailPiece | None:
        """Add what follows the last piece, and return it; None if the piece does not follow."""
        if piece.hi <= self.next or piece.lo > self.next or not piece.cuts_at(self.next):
            return None
        kept = piece.between(self.next, piece.hi)
        self._pieces.append(kept)
        self.next = kept.hi
        return kept

    def record(self, offset: int, now: float) -> int:
        """Note what the table has recorded, and return the bytes of pieces that are dropped.

        They are dropped if the tail is far behind, or cannot be cut there, and it begins anew.
        """
        if offset <= self.recorded:
            return 0
        self.recorded = offset
        self._commits.append((now, offset))
        is_near = offset <= self.next + MAX_BEHIND
        if offset < self.low or (is_near and self._cuts_at(offset)):
            return 0
        self.ready_at = max(self.ready_at, self.next, offset)
        dropped = self.size_bytes
        self._pieces.clear()
        self.low = self.next = offset
        self._first = None
        return dropped

    def expire(self, before: float, floor: int) -> int:
        """Drop what the table had recorded at a time, but nothing from ``floor`` on.

        Returns the bytes that were dropped.
        """
        stop = -1
        while self._commits and self._commits[0][0] <= before:
            stop = self._commits.popleft()[1]
        if stop > floor:
            self._commits.appendleft((before, stop))
            stop = floor
        return self._drop(stop)

    def evict(self) -> int:
        """Drop the first piece if the table has all of it, and return its bytes."""
        if not self._pieces or self._pieces[0].hi > self.recorded:
            return 0
        return self._drop(self._pieces[0].hi)

    def _drop(self, stop: int) -> int:
        dropped = 0
        while self._pieces and self._pieces[0].hi <= stop:
            piece = self._pieces.popleft()
            dropped += piece.size_bytes
            self.low = piece.hi
        return dropped

    def since(self, offset: int | None) -> int:
        """Return where a read begins, given what the table has recorded; None if nothing.

        Raises TailTrimmedError if the tail has no longer all rows from there on.
        """
        if offset is None:
            if self.low != self._first:
                raise TailTrimmedError(
                    f"the rows before offset {self.low} are not kept any more, and the version of "
                    "the table that is read has none of them; load it again"
                )
            return self.low
        if offset < self.low:
            raise TailTrimmedError(
                f"the rows from offset {offset} on are not kept any more, only those from "
                f"{self.low} on; load the table again, which has the others"
            )
        return offset

    def is_ready(self, since: int) -> bool:
        """Return whether a read that begins there may be answered."""
        return max(self.next, since) >= self.ready_at and self._cuts_at(since)

    def between(self, since: int, until: int) -> Iterator[TailPiece]:
        """Yield the rows of a range, piece by piece; raise TailBehindError for a wrong cut."""
        for piece in self._pieces:
            if piece.hi <= since or piece.lo >= until:
                continue
            if not (piece.cuts_at(since) and piece.cuts_at(until)):
                raise TailBehindError(
                    f"the rows of the offsets {piece.lo} to {piece.hi} cannot be told from each "
                    "other; try again, as they are read again from there on"
                )
            yield piece.between(since, until)

    def _cuts_at(self, offset: int) -> bool:
        return all(piece.cuts_at(offset) for piece in self._pieces)
