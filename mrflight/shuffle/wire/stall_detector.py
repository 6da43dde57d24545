"""Ends a stream from which nothing comes, long before the deadline of the whole stream.

A server whose disk hangs, or that is suspended, keeps its connections and sends nothing. gRPC only
has a deadline for a stream as a whole, which may rightly be long.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Iterator

from pyarrow import flight

from mrflight.system.signals import run_interruptibly

_CHECK_EVERY_S = 0.5


class _Waiting:
    """A stream that is read, and since when its reader has waited for the next message."""

    def __init__(self, stream: flight.FlightStreamReader, idle_timeout_s: float) -> None:
        self.stream = stream
        self.idle_timeout_s = idle_timeout_s
        self.since_s: float | None = None
        self.is_cut = False


class StallDetector:
    """Watches streams from a thread that the first stream starts.

    Safe for many threads. A process that is forked from this one starts its own thread.
    """

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        # Adding, removing and listing are each one step of the interpreter.
        self._waiting: dict[_Waiting, None] = {}
        self._start_lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def messages(
        self, open_stream: Callable[[], flight.FlightStreamReader], idle_timeout_s: float
    ) -> Iterator[flight.FlightStreamChunk]:
        """Yield the messages of a stream; the time between two reads does not count as waiting.

        Raises FlightTimedOutError if opening it, or its next message, takes longer than
        ``idle_timeout_s``.
        """
        waiting = _Waiting(_open_in_time(open_stream, idle_timeout_s), idle_timeout_s)
        self._waiting[waiting] = None
        self._start()
        has_ended = False
        try:
            while True:
                waiting.since_s = time.monotonic()
                try:
                    message = waiting.stream.read_chunk()
                except StopIteration:
                    has_ended = True
                    return
                except flight.FlightError as error:
                    if waiting.is_cut:
                        raise flight.FlightTimedOutError(_nothing_for(idle_timeout_s)) from error
                    raise
                waiting.since_s = None
                yield message
        finally:
            del self._waiting[waiting]
            if not has_ended:  # or the server waits until the reader goes on
                waiting.stream.cancel()

    def _start(self) -> None:
        with self._start_lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="stalls", daemon=True)
                self._thread.start()
                atexit.register(self._ended.set)

    def _watch(self) -> None:
        while not self._ended.wait(_CHECK_EVERY_S):
            self._cancel_stalled()

    def _cancel_stalled(self) -> None:
        now_s = time.monotonic()
        for waiting in list(self._waiting):
            since_s = waiting.since_s
            if since_s is not None and now_s - since_s > waiting.idle_timeout_s:
                waiting.is_cut = True
                waiting.stream.cancel()


def _open_in_time(
    open_stream: Callable[[], flight.FlightStreamReader], idle_timeout_s: float
) -> flight.FlightStreamReader:
    """Open a stream; this waits for its first message, which nothing can cancel."""
    try:
        return run_interruptibly(open_stream, idle_timeout_s)
    except TimeoutError as error:
        raise flight.FlightTimedOutError(_nothing_for(idle_timeout_s)) from error


def _nothing_for(idle_timeout_s: float) -> str:
    return f"nothing came for {idle_timeout_s:g} s"
