"""The tails of live streams that a data server holds, in memory and within a limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mrflight.errors import (
    AccessDeniedError,
    DeadlineExceededError,
    ProtocolError,
    SchemaMismatchError,
    ServerUnavailableError,
    TailBehindError,
    TailNotFoundError,
)
from mrflight.ids import check_secret, same_token
from mrflight.shuffle.store.tail_partition import TailPartition, TailPiece
from mrflight.shuffle.wire.tail_protocol import (
    MAX_WAIT_S,
    OFFSET_COLUMN,
    OpenTail,
    TailPut,
    TailRange,
    TailRead,
    TrimTail,
    reader_token,
)
from mrflight.units import format_bytes

GRACE_S = 30.0
"""How long rows are kept once the table has them, for readers of a version before."""
PUT_TIMEOUT_S = 60.0
ABANDONED_S = 120.0
"""A tail is forgotten after so long without a call of its stream, which calls every second."""
_MAX_PIN_S = 3600.0
PINS_EVERY_S = 60.0
"""Pins that end within this time are one, which keeps what all of them keep: a tail has 61 of them
at most, however many are asked for."""
_NO_FLOOR = 2**63 - 1


@dataclass(frozen=True)
class TailRows:
    """The answer to a read."""

    schema: pa.Schema
    watermark: dict[str, int]
    pieces: Sequence[tuple[TailRange, pa.RecordBatch]]


@dataclass
class _Tail:
    """A tail, whose partitions are by their names, and never become fewer."""

    epoch: int
    heard_at: float
    """When the stream has called last."""
    token: str = ""
    partitions: dict[str, TailPartition] = field(default_factory=dict)
    schema: pa.Schema | None = None
    """With the column of offsets, if there is one."""
    pins: dict[int, tuple[float, npt.NDArray[np.int64]]] = field(default_factory=dict)
    """Until when rows are kept, and from which offset of each partition on. Those partitions that
    were added later are not pinned."""

    def pin(self, ends: float, since: dict[str, int], now: float) -> None:
        """Keep the rows from an offset of every partition on for a while."""
        self._unpin(now)
        lowest = np.fromiter((since[name] for name in self.partitions), np.int64)
        minute = int(ends // PINS_EVERY_S)
        if (known := self.pins.get(minute)) is not None:
            ends, before = max(ends, known[0]), known[1]
            lowest[: len(before)] = np.minimum(lowest[: len(before)], before)
        self.pins[minute] = ends, lowest

    def floors(self, now: float) -> list[int]:
        """Return the first offset of each partition that a pin keeps, or one that none reaches."""
        self._unpin(now)
        floors = np.full(len(self.partitions), _NO_FLOOR, np.int64)
        for _, since in self.pins.values():
            floors[: len(since)] = np.minimum(floors[: len(since)], since)
        return [int(each) for each in floors]

    def _unpin(self, now: float) -> None:
        self.pins = {minute: pin for minute, pin in self.pins.items() if pin[0] > now}


class TailStore:
    """The tails of a data server. Safe for many threads.

    At most ``limit_bytes`` are held, or one batch that is larger. A put that finds no room waits
    for the table's commits; before that, rows are dropped that the table has, with or without a
    pin. ``count`` is told of every change of the bytes.
    """

    def __init__(
        self,
        limit_bytes: int,
        count: Callable[[int], None] = lambda _: None,
        *,
        grace_s: float = GRACE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = limit_bytes
        self._count = count
        self._grace_s = grace_s
        self._clock = clock
        self._changed = threading.Condition()
        self._tails: dict[str, _Tail] = {}
        self._is_closed = False
        self.held_bytes = 0

    def open(self, request: OpenTail) -> dict[str, int]:
        """Begin a tail or go on with it, and return where; see `OpenTail`.

        Raises AccessDeniedError for another token than the tail's, and ProtocolError from an older
        feeder or for a token of readers.
        """
        with self._changed:
            now = self._clock()
            self._forget_abandoned(now)
            if request.tail not in self._tails:
                check_secret(request.token)
            began = _Tail(request.epoch, now, request.token)
            tail = self._tails.setdefault(request.tail, began)
            self._check_token(request.tail, request.token)
            self._check_epoch(tail, request.epoch)
            tail.epoch, tail.heard_at = request.epoch, now
            for name, start in request.starts.items():
                if name not in tail.partitions:
                    tail.partitions[name] = TailPartition(
                        start,
                        request.ready_at.get(name),
                        is_first=name not in request.recorded,
                    )
            self._changed.notify_all()
            return {name: each.next for name, each in tail.partitions.items()}

    def put(self, target: TailPut, range: TailRange, batch: pa.RecordBatch) -> None:
        """Add a batch if it follows the last one of its partition, and else leave it.

        Waits while memory is short. Raises TailNotFoundError, ProtocolError from an older feeder,
        AccessDeniedError, SchemaMismatchError and DeadlineExceededError.
        """
        name = target.tail
        piece = TailPiece.of(range.lo, range.hi, batch)
        with self._changed:
            self._heard(name, target.token)
            self._make_room(name, piece.size_bytes)
            tail = self._heard(name, target.token)
            self._check_epoch(tail, target.epoch)
            partition = tail.partitions.get(range.partition)
            if partition is None:
                raise ProtocolError(f"the tail {name!r} has no partition {range.partition!r}")
            if batch.num_rows:
                self._check_schema(tail, batch.schema)
            if (kept := partition.append(piece)) is not None:
                self._hold(kept.size_bytes)
            self._changed.notify_all()

    def positions(self, name: str, token: str = "") -> dict[str, int]:
        """Return with which offset a tail goes on in each partition."""
        with self._changed:
            tail = self._heard(name, token)
            return {part: each.next for part, each in tail.partitions.items()}

    def trim(self, request: TrimTail) -> dict[str, int]:
        """Note what the table has, drop what nobody needs any more, and return the positions."""
        with self._changed:
            tail, now = self._heard(request.tail, request.token), self._clock()
            for part, offset in request.recorded.items():
                if part in tail.partitions:
                    self._hold(-tail.partitions[part].record(offset, now))
            for each, floor in zip(tail.partitions.values(), tail.floors(now), strict=True):
                self._hold(-each.expire(now - self._grace_s, floor))
            self._changed.notify_all()
            return {part: each.next for part, each in tail.partitions.items()}

    def read(self, request: TailRead) -> TailRows:
        """Return the rows from the offsets of a version on, as they are now or within the wait.

        Raises TailNotFoundError, AccessDeniedError, TailTrimmedError, and TailBehindError after the
        wait.
        """
        with self._changed:
            self._check_token(request.tail, request.token, reads=True)
            self._await(request)
            tail = self._tail(request.tail)
            since = self._since(tail, request)
            watermark = {part: max(tail.partitions[part].next, since[part]) for part in since}
            until = watermark if request.until is None else request.until
            pieces = [
                (TailRange(part, piece.lo, piece.hi), piece.rows)
                for part in sorted(since)
                for piece in tail.partitions[part].between(since[part], until.get(part, 0))
                if piece.rows.num_rows
            ]
            if request.pin_s > 0:
                now = self._clock()
                tail.pin(now + min(request.pin_s, _MAX_PIN_S), since, now)
            answered = {part: until.get(part, since[part]) for part in since}
            return TailRows(_without_offsets(tail.schema), answered, pieces)

    def drop(self, name: str, token: str = "") -> None:
        """Forget a tail; do nothing if there is none. Raises AccessDeniedError."""
        with self._changed:
            if name in self._tails:
                self._check_token(name, token)
                self._forget(name)

    def partition_count(self, name: str) -> int:
        """Return the partitions of a tail, at least 1; 0 if there is none of this name."""
        with self._changed:
            tail = self._tails.get(name)
            return 0 if tail is None else max(1, len(tail.partitions))

    def partitions_with(self, request: OpenTail) -> int:
        """Return the partitions that a tail has once it is opened, at least 1."""
        with self._changed:
            tail = self._tails.get(request.tail)
            known = {} if tail is None else tail.partitions
            return max(1, len(known.keys() | request.starts.keys()))

    def forget_abandoned(self) -> None:
        """Forget the tails of streams that have ended without a word."""
        with self._changed:
            self._forget_abandoned(self._clock())

    def _forget_abandoned(self, now: float) -> None:
        for name, tail in list(self._tails.items()):
            if now - tail.heard_at > ABANDONED_S:
                self._forget(name)

    def _forget(self, name: str) -> None:
        if (tail := self._tails.pop(name, None)) is not None:
            self._hold(-sum(each.size_bytes for each in tail.partitions.values()))
        self._changed.notify_all()

    def close(self) -> None:
        """End all waits."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _since(self, tail: _Tail, request: TailRead) -> dict[str, int]:
        since = request.since
        return {part: each.since(since.get(part)) for part, each in tail.partitions.items()}

    def _await(self, request: TailRead) -> None:
        """Wait until the tail has come as far as the reader wants."""
        deadline = self._clock() + min(request.wait_s, MAX_WAIT_S)
        wanted = {**request.at_least, **(request.until or {})}
        while (behind := self._behind(request, wanted)) is not None:
            if self._is_closed:
                raise ServerUnavailableError("the data server is stopping")
            left_s = deadline - self._clock()
            if left_s <= 0:
                raise TailBehindError(behind)
            self._changed.wait(left_s)

    def _behind(self, request: TailRead, wanted: dict[str, int]) -> str | None:
        """Return why a read cannot be answered yet; None if it can."""
        tail = self._tail(request.tail)
        since = self._since(tail, request)
        for part, each in tail.partitions.items():
            if not each.is_ready(since[part]):
                return f"{part}: the rows from offset {each.next} on are still read from Kafka"
        for part, offset in wanted.items():
            known = tail.partitions.get(part)
            reached = max(request.since.get(part, 0), 0 if known is None else known.next)
            if reached < offset:
                return f"{part}: offset {reached} is reached, and {offset} was asked for"
        return None

    def _make_room(self, name: str, size: int) -> None:
        """Wait until some bytes fit."""
        deadline = self._clock() + PUT_TIMEOUT_S
        while self.held_bytes and self.held_bytes + size > self._limit:
            if self._evict():
                continue
            left_s = deadline - self._clock()
            if left_s <= 0 or self._is_closed:
                raise DeadlineExceededError(
                    f"the tail {name!r} found no room for {format_bytes(size)}: "
                    f"{format_bytes(self.held_bytes)} of {format_bytes(self._limit)} wait for "
                    "commits; commit more often (stream.commit), or give more memory"
                )
            self._changed.wait(left_s)
            self._tail(name)  # which may have been dropped

    def _evict(self) -> bool:
        """Drop a batch that the table has, of any tail; return whether there was one."""
        for tail in self._tails.values():
            for each in tail.partitions.values():
                if dropped := each.evict():
                    self._hold(-dropped)
                    return True
        return False

    def _hold(self, size: int) -> None:
        if size:
            self.held_bytes += size
            self._count(size)

    def _check_token(self, name: str, token: str, *, reads: bool = False) -> None:
        """Raise AccessDeniedError for a token that is not the tail's; none is left to the server.

        Raises TailNotFoundError, too. Those who read may have the token of readers.
        """
        own = self._tail(name).token
        allowed = [own, reader_token(own)] if reads else [own]
        if token and not any(same_token(token, each) for each in allowed):
            raise AccessDeniedError(
                f"this is not the token {'to read' if reads else 'to feed'} the tail {name!r}; its "
                "stream has it, and for readers the file beside the table"
            )

    def _heard(self, name: str, token: str) -> _Tail:
        """Return the tail that its stream calls about."""
        self._check_token(name, token)
        tail = self._tail(name)
        tail.heard_at = self._clock()
        return tail

    def _tail(self, name: str) -> _Tail:
        if (tail := self._tails.get(name)) is None:
            raise TailNotFoundError(
                f"the tail {name!r} is not on this data server: its stream has ended, or is about "
                "to fetch it again"
            )
        return tail

    def _check_epoch(self, tail: _Tail, epoch: int) -> None:
        if epoch < tail.epoch:
            raise ProtocolError(
                f"a feeder of epoch {epoch} was replaced by one of epoch {tail.epoch}"
            )

    def _check_schema(self, tail: _Tail, schema: pa.Schema) -> None:
        if tail.schema is None or tail.schema.equals(schema):
            tail.schema = schema
            return
        while self._evict():
            pass
        if any(each.size_bytes for each in tail.partitions.values()):
            raise SchemaMismatchError(
                f"a batch has other columns than those before it: {schema.names}, not "
                f"{tail.schema.names}; it is taken once the table has the others"
            )
        tail.schema = schema


def _without_offsets(schema: pa.Schema | None) -> pa.Schema:
    if schema is None:
        return pa.schema([])
    names = schema.names
    return schema.remove(len(names) - 1) if names and names[-1] == OFFSET_COLUMN else schema
