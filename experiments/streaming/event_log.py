"""An event log of mrflight: each write is answered once its rows are durable."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any

import pyarrow as pa

import mrflight
from experiments.streaming.run_spec import RunSpec
from experiments.streaming.trips import ID
from experiments.streaming.writer import Writer

IN_FLIGHT = 64


class EventLog(Writer):
    """A log, by a call that waits for each answer, or by an appender with some in flight."""

    def __init__(self, spec: RunSpec, *, is_new: bool) -> None:
        self._name = spec.place.namespace
        self._stack = ExitStack()
        self._cluster = self._stack.enter_context(mrflight.connect(spec.place.metadata))
        if is_new:
            self._cluster.create_log(self._name)
        self._appender: Any = None
        if spec.system == "mrflight-appender":
            self._appender = self._stack.enter_context(self._cluster.appender(self._name))
        self._slots = threading.Semaphore(IN_FLIGHT)

    def write(self, rows: pa.Table, written: Callable[[], None]) -> None:
        (batch,) = rows.to_batches()
        if self._appender is None:
            self._cluster.append(self._name, batch)
            written()
            return

        def answered(future: Future[Any]) -> None:
            if future.exception() is None:
                written()
            self._slots.release()

        self._slots.acquire()
        self._appender.append(batch).add_done_callback(answered)

    def finish(self) -> None:
        for _ in range(IN_FLIGHT):
            self._slots.acquire()
        for _ in range(IN_FLIGHT):
            self._slots.release()
        if self._appender is not None:
            self._appender.flush()

    def ids(self) -> pa.ChunkedArray:
        found = [part.rows.column(ID) for part in self._cluster.read_log(self._name)]
        return pa.chunked_array(found, pa.int64())

    def close(self) -> None:
        self._stack.close()
