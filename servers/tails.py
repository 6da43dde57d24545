"""The calls of a data server that are about the tails of live streams."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pyarrow as pa
from pyarrow import flight

from mrflight.errors import ProtocolError
from mrflight.ids import MAX_PARTITIONS
from mrflight.security.principal import JOBS
from mrflight.security.quota import Holdings, Quota
from mrflight.shuffle.store.received_batch import check_received
from mrflight.shuffle.store.tail_store import TailStore
from mrflight.shuffle.wire.protocol import Done, Message, decode
from mrflight.shuffle.wire.tail_protocol import (
    OpenTail,
    TailAction,
    TailAnswer,
    TailName,
    TailPositions,
    TailPut,
    TailRange,
    TailRead,
    TrimTail,
)

from .actions import Handler
from .guard import OF_TAIL
from .idle_streams import StreamRules

_LOOK_EVERY_S = 30.0
MESSAGE_BYTES = 2 * 2**20
"""The rough size of a message of rows: clients of gRPC take 4 MiB by default."""

TAILS = Quota("tail", 4096, MAX_PARTITIONS)
"""A stream has one, with the partitions of its topics."""


class Tails:
    """Answers calls from a `TailStore`."""

    def __init__(self, store: TailStore, rules: StreamRules, quota: Quota = TAILS) -> None:
        self._store = store
        self._rules = rules
        self._held = Holdings(quota, store.partition_count)
        self._opening = threading.Lock()
        """No tail gets more partitions between its count and its opening."""

    @property
    def handlers(self) -> dict[str, Handler]:
        """What answers the actions."""
        return {
            TailAction.OPEN_TAIL: Handler(OpenTail, self._open, JOBS, OF_TAIL, by_caller=True),
            TailAction.TRIM_TAIL: Handler(TrimTail, self._trim, JOBS, OF_TAIL),
            TailAction.DROP_TAIL: Handler(TailName, self._drop, JOBS, OF_TAIL),
        }

    def put(self, target: TailPut, received: Iterator[flight.FlightStreamChunk]) -> bytes:
        """Store the batches of a put, and return its receipt."""
        for message in received:
            if message.app_metadata is None:
                raise ProtocolError("a batch of a tail has its range as app_metadata")
            check_received(message.data, takes_compressed=self._rules.takes_compressed)
            part = decode(memoryview(message.app_metadata), TailRange)
            self._store.put(target, part, message.data)
        positions = self._store.positions(target.tail, target.token)
        return msgspec.json.encode(TailPositions(positions))

    def get(self, request: TailRead) -> tuple[pa.Schema, Iterator[tuple[pa.RecordBatch, bytes]]]:
        """Return the columns and the messages of an answer."""
        found = self._store.read(request)

        def messages() -> Iterator[tuple[pa.RecordBatch, bytes]]:
            empty = pa.RecordBatch.from_pylist([], schema=found.schema)
            yield empty, msgspec.json.encode(TailAnswer(found.watermark))
            for part, rows in found.pieces:
                tag = msgspec.json.encode(part)
                for piece in in_messages(rows):
                    yield piece, tag

        return found.schema, messages()

    def _open(self, request: OpenTail, caller: str) -> Message:
        with self._opening:
            partitions = self._store.partitions_with(request)
            with self._held.adding(caller, request.tail, partitions):
                return TailPositions(self._store.open(request))

    def _trim(self, request: TrimTail) -> Message:
        return TailPositions(self._store.trim(request))

    def _drop(self, request: TailName) -> Message:
        self._store.drop(request.tail, request.token)
        return Done()


@contextmanager
def forgetting_abandoned(store: TailStore) -> Iterator[None]:
    """Look now and then, in a thread, whether streams of tails have ended without a word."""
    ending = threading.Event()

    def look() -> None:
        while not ending.wait(_LOOK_EVERY_S):
            store.forget_abandoned()

    thread = threading.Thread(target=look, name="abandoned-tails", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


def in_messages(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield rows in batches that are small enough for a message."""
    count = max(1, -(-rows.nbytes // MESSAGE_BYTES))
    at_once = max(1, -(-rows.num_rows // count))
    for start in range(0, max(1, rows.num_rows), at_once):
        yield rows.slice(start, at_once)
