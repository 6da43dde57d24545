"""Group commit: batches of many producers become durable by one sync, in the order of arrival."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

from mrflight.compute.schemas import describe_difference
from mrflight.errors import (
    EventLogWriteError,
    MrflightError,
    SchemaMismatchError,
    ServerUnavailableError,
)
from mrflight.shuffle.log.durable_log import DurableLog
from mrflight.shuffle.log.frame import NO_SEQUENCE, Frame, StoredBatch, hash_payload
from mrflight.shuffle.log.log_totals import LogTotals
from mrflight.shuffle.log.producers import REMEMBERED_BATCHES, find_repeated
from mrflight.system.closeable import Closeable

log = logging.getLogger(__name__)

GROUP_BYTES = 2**20
GROUP_WAIT_S = 0.002
"""How long a group waits for as many batches as the last one had. Producers that wait for their
answers send the next batch within that time, and then share one sync."""
MAX_PENDING_BYTES = 16 * 2**20
"""The bytes of batches that wait to be written. Beyond that `GroupCommit.submit` waits."""


class Append:
    """A batch on its way into a log. ``done`` is called with it once ``error`` or ``start`` is set.

    It is called by the thread that writes the log, and so must not wait.
    """

    __slots__ = (
        "done",
        "error",
        "payload",
        "payload_hash",
        "producer",
        "rows",
        "sequence",
        "start",
    )

    def __init__(
        self,
        payload: bytes,
        rows: int,
        done: Callable[[Append], None],
        producer: str = "",
        sequence: int = NO_SEQUENCE,
    ) -> None:
        self.payload = payload
        self.payload_hash = hash_payload(payload)
        self.rows = rows
        self.done = done
        self.producer = producer
        self.sequence = sequence
        self.start = -1
        """The offset of its first row."""
        self.error: MrflightError | None = None

    def frame(self, at: int, durable: int) -> Frame:
        """Return it as the frame at an offset of a log that is ``durable`` up to another."""
        return Frame(
            at,
            self.rows,
            self.payload,
            self.producer,
            self.sequence,
            durable,
            known_hash=self.payload_hash,
        )


class Replication(Protocol):
    """How a log gets to its replicas. Every method raises MrflightError if it cannot."""

    def prepare(self) -> None:
        """Check that this server owns the log, and that its replicas hold all of it."""

    def send(self, frames: Sequence[Frame]) -> None:
        """Begin to send frames to the replicas."""

    def confirm(self) -> None:
        """Wait until the replicas have synced what was sent, and check the ownership again."""


class Alone:
    """The `Replication` of a log without replicas."""

    def prepare(self) -> None: ...

    def send(self, frames: Sequence[Frame]) -> None: ...

    def confirm(self) -> None: ...


class GroupPlan(NamedTuple):
    """The frames of a group of appends, none if all were stored before."""

    frames: list[Frame]
    starts: list[int | MrflightError]
    """The offset of the first row of each append, or why it is refused."""


class GroupCommit(Closeable):
    """Writes one `DurableLog` in a thread of its own. `submit` is for many threads."""

    def __init__(
        self, log: DurableLog, replication: Replication, totals: LogTotals | None = None
    ) -> None:
        self.log = log
        self.durable = log.high
        """The rows below it are acknowledged, or were found when the log was opened."""
        self._replication = replication
        self._totals = totals or LogTotals()
        self._schema = log.schema
        self._changed = threading.Condition()
        self._waiting: deque[Append] = deque()
        self._waiting_bytes = 0
        self._last_count = 1
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="event log", daemon=True)
        self._thread.start()

    def check_schema(self, schema: pa.Schema) -> None:
        """Take the schema of the first batch; raise SchemaMismatchError for another one later."""
        with self._changed:
            if self._schema is None:
                self._schema = schema
            elif difference := describe_difference(self._schema, schema):
                raise SchemaMismatchError(
                    f"the rows do not have the schema of the event log: {difference}; the first "
                    "batch has decided it, so use another log, or change the rows"
                )

    @property
    def schema(self) -> pa.Schema | None:
        """The schema that batches must have; None before the first."""
        return self._schema

    def submit(self, append: Append) -> None:
        """Queue an append; waits while too much is queued. It is ``done`` later in any case."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._waiting_bytes < MAX_PENDING_BYTES or self._is_closed
            )
            if self._is_closed:
                append.error = ServerUnavailableError("the data server is stopping")
            else:
                self._waiting.append(append)
                self._waiting_bytes += len(append.payload)
                self._changed.notify_all()
        if append.error is not None:
            append.done(append)

    def close(self) -> None:
        """Write what is queued, and end."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while group := self._next_group():
            try:
                self._commit(group)
            except MrflightError as error:
                self._fail(group, error)
            except Exception as error:
                log.exception("an event log failed")
                self._fail(group, EventLogWriteError(f"the event log failed: {error}"))

    def _next_group(self) -> list[Append]:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            wait_until = time.monotonic() + GROUP_WAIT_S
            while len(self._waiting) < self._last_count and self._waiting_bytes < GROUP_BYTES:
                if self._is_closed or (left_s := wait_until - time.monotonic()) <= 0:
                    break
                self._changed.wait(left_s)
            group: list[Append] = []
            size = 0
            while self._waiting and (not group or size < GROUP_BYTES):
                append = self._waiting.popleft()
                size += len(append.payload)
                group.append(append)
            self._waiting_bytes -= size
            self._last_count = len(group)
            self._changed.notify_all()
            return group

    def _commit(self, group: list[Append]) -> None:
        self.log.check_writable()  # or a batch that is sent again could be found in it
        self._replication.prepare()
        self.durable = self.log.high
        plan = plan_group(group, self.log, self._schema)
        if plan.frames:
            self.log.append(plan.frames)
            self._replication.send(plan.frames)
            self.log.sync()
            self._replication.confirm()
            self.durable = self.log.high
            self._totals.count(plan.frames)
        for append, start in zip(group, plan.starts, strict=True):
            if isinstance(start, MrflightError):
                append.error = start
            else:
                append.start = start
            append.done(append)

    def _fail(self, group: list[Append], error: MrflightError) -> None:
        """Refuse a group and all that came behind it, so that no batch overtakes another."""
        with self._changed:
            group = [*group, *self._waiting]
            self._waiting.clear()
            self._waiting_bytes = 0
            self._schema = self.log.schema
            self._changed.notify_all()
        for append in group:
            if append.start < 0 and append.error is None:
                append.error = error
                append.done(append)


def plan_group(group: list[Append], log: DurableLog, schema: pa.Schema | None) -> GroupPlan:
    """Give the appends their offsets, and find those that were stored before."""
    frames: list[Frame] = []
    starts: list[int | MrflightError] = []
    recent: dict[str, tuple[StoredBatch, ...]] = {}
    at = durable = log.high
    for append in group:
        if append.sequence != NO_SEQUENCE:
            known = recent.get(append.producer)
            known = log.producers.recent(append.producer) if known is None else known
            batch = StoredBatch(append.sequence, at, append.rows, append.payload_hash)
            try:
                found = find_repeated(append.producer, batch, known)
            except MrflightError as error:
                starts.append(error)
                continue
            if found is not None:
                starts.append(found.start)
                continue
            recent[append.producer] = (*known, batch)[-REMEMBERED_BATCHES:]
        frames.append(append.frame(at, durable))
        starts.append(at)
        at += append.rows
    if frames and log.needs_segment:
        assert schema is not None, "the schema is checked before the first append"
        frames.insert(0, log.segment_start(schema))
    return GroupPlan(frames, starts)
