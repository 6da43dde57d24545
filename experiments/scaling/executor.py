"""The executor of a job whose workers are simulated by one process."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, NamedTuple, ParamSpec, TypeVar

from mrflight.runtime.calls import decode_answer
from mrflight.runtime.ray.shared_payloads import CallEncoder

P = ParamSpec("P")
R = TypeVar("R")


class _Call(NamedTuple):
    encoded: bytes
    parts: dict[int, bytes]
    """The parts that are sent for the first time."""
    future: Future[Any]


class SimulatedExecutor:
    """Sends encoded calls of ``workers`` at a time, as to workers on Ray. It counts their bytes."""

    def __init__(self, workers: int, channel: Connection) -> None:
        self.workers = workers
        self.messages: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self.received: Counter[str] = Counter()
        self._channel = channel
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._parts: dict[int, bytes] = {}
        self._encoder = CallEncoder(self._parts.__setitem__)
        self._room = threading.Semaphore(workers)
        self._running: dict[int, Future[Any]] = {}
        self._threads = [
            threading.Thread(target=target, daemon=True) for target in (self._send, self._receive)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        future: Future[R] = Future()
        encoded = self._encoder.encode(function, args, kwargs).call
        parts = self._parts.copy()
        self._parts.clear()
        self.messages["calls"] += 1
        self.sent["calls"] += len(encoded) + sum(map(len, parts.values()))
        self._calls.put(_Call(encoded, parts, future))
        return future

    def worker_of(self, future: Future[Any]) -> str:
        return ""

    def stop(self, future: Future[Any]) -> None:
        """Do not stop a running call: it ends in a moment, and then answers."""
        future.cancel()

    def close(self) -> None:
        self._calls.put(None)
        for thread in self._threads:
            thread.join()

    def _send(self) -> None:
        number = 0
        while (call := self._calls.get()) is not None:
            if call.future.set_running_or_notify_cancel():
                self._room.acquire()
                self._running[number] = call.future
                self._channel.send((number, call.encoded, call.parts))
                number += 1
        self._channel.send((-1, b"", {}))

    def _receive(self) -> None:
        while True:
            try:
                number, answer = self._channel.recv()
            except EOFError as error:
                for future in self._running.values():
                    future.set_exception(error)
                return
            if number < 0:
                return
            self._room.release()
            self.received["calls"] += len(answer)
            future = self._running.pop(number)
            try:
                future.set_result(decode_answer(answer))
            except Exception as error:
                future.set_exception(error)
