"""Sends a small call over every connection in use, so that one whose other end is gone fails.

A network that silently drops all packets resets no connection. A sender notices, because nothing is
acknowledged. A client that waits for a stream does not, because it sends nothing. gRPC's own
pings do not help: a server that sends nothing meanwhile, for example to a slow reducer, ends the
connection for too many of them, after 32 s with one every 10 s.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref

import msgspec
import pyarrow as pa
from pyarrow import flight

from mrflight.shuffle.wire.protocol import Done, MetadataAction
from mrflight.system.closeable import Closeable

log = logging.getLogger(__name__)

_CALL_TIMEOUT_S = 1.0
"""The answer does not matter: what counts is that there is something to acknowledge."""


_OPTIONS = flight.FlightCallOptions(timeout=_CALL_TIMEOUT_S)
_ACTION = (MetadataAction.KEEPALIVE.value, msgspec.json.encode(Done()))


class Keepalive(Closeable):
    """Calls over each connection every ``every_s`` seconds, from a thread that the first starts.

    Safe for many threads. A process that is forked from this one starts its own thread.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        """Start without clients: clients from before a fork must not be used after it."""
        # References are weak, so that a client that is never closed does not live for ever, and
        # none is closed here after a fork, which would wait for gRPC threads that do not exist.
        # Adding, removing and listing are each one step of the interpreter.
        self._clients: dict[weakref.ref[flight.FlightClient], None] = {}
        self._start_lock = threading.Lock()
        self._call_lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, client: flight.FlightClient) -> None:
        """Call over a client from now on, until it is removed or collected."""
        self._clients[weakref.ref(client)] = None
        with self._start_lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="keepalive", daemon=True)
                self._thread.start()
                atexit.register(self.close)  # a thread in the middle of a call would end badly

    def remove(self, client: flight.FlightClient) -> None:
        """Start no more calls over a client; one may be under way."""
        self._clients.pop(weakref.ref(client), None)

    def close_client(self, client: flight.FlightClient) -> None:
        """Remove a client and close it; during a call, leave closing to the last reference.

        In Arrow 26, a call that begins while another thread closes its client ends the process.
        """
        self.remove(client)
        if self._call_lock.acquire(blocking=False):
            try:
                client.close()
            finally:
                self._call_lock.release()

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(2 * _CALL_TIMEOUT_S)

    def _run(self) -> None:
        while not self._ended.wait(self._every_s):
            for reference in list(self._clients):
                if self._ended.is_set():
                    return
                with self._call_lock:
                    if (client := reference()) is None:
                        self._clients.pop(reference, None)
                    elif reference in self._clients:
                        _call(client)
                    del client  # or it would live until the next round


def _call(client: flight.FlightClient) -> None:
    """Make one call, and ignore its failure."""
    try:
        # Not `list_actions`: when a server that stops cancels one, in any thread, pyarrow
        # interrupts the main thread as if by Ctrl-C.
        list(client.do_action(_ACTION, _OPTIONS))
    except (flight.FlightError, pa.ArrowException, OSError) as error:
        log.debug("a keepalive call failed: %s", error)
