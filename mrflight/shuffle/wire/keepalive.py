"""Something small over every connection in use, so that one whose other end is gone fails.

A network that drops all packets and says nothing resets no connection. Whoever sends learns of
it, as nothing is acknowledged; who waits for a stream does not, as it has nothing to send. gRPC's
own pings are no remedy: a server that sends nothing meanwhile, as to a reducer that takes its
time, ends the connection for too many of them, after 32 s where there is one every 10 s.
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
"""The answer is of no use: what counts is that there is something to acknowledge."""


_OPTIONS = flight.FlightCallOptions(timeout=_CALL_TIMEOUT_S)
_PULSE = (MetadataAction.PULSE.value, msgspec.json.encode(Done()))


class Keepalive(Closeable):
    """Calls over each connection ``every_s`` seconds, from a thread that the first one starts.

    Safe for many threads. A process that was forked from one with a pulse starts its own.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        """Without clients: those of before a fork are not to be used after it."""
        # Weak, so that who forgets to let go of a client does not have it for ever, and none is
        # closed here after a fork, which would wait for threads of gRPC's that are not there.
        # Adding, removing and listing are one step each of the interpreter.
        self._clients: dict[weakref.ref[flight.FlightClient], None] = {}
        self._starting = threading.Lock()
        self._calling = threading.Lock()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, client: flight.FlightClient) -> None:
        """From now on, until it is removed or nobody has it any more."""
        self._clients[weakref.ref(client)] = None
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._beat, name="pulse", daemon=True)
                self._thread.start()
                atexit.register(self.close)  # a thread in the midst of a call would end badly

    def remove(self, client: flight.FlightClient) -> None:
        """No more; a call may be under way."""
        self._clients.pop(weakref.ref(client), None)

    def close_client(self, client: flight.FlightClient) -> None:
        """Remove and close it; beside a call it is closed when whoever has it last lets it go.

        A call that begins as another thread closes its client ends the process, in Arrow 26.
        """
        self.remove(client)
        if self._calling.acquire(blocking=False):
            try:
                client.close()
            finally:
                self._calling.release()

    def close(self) -> None:
        """End the thread."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(2 * _CALL_TIMEOUT_S)

    def _beat(self) -> None:
        while not self._ending.wait(self._every_s):
            for reference in list(self._clients):
                if self._ending.is_set():
                    return
                with self._calling:
                    if (client := reference()) is None:
                        self._clients.pop(reference, None)
                    elif reference in self._clients:
                        _call(client)
                    del client  # not to be kept until the next beat


def _call(client: flight.FlightClient) -> None:
    """One call, whose failure is of no consequence here."""
    try:
        # Not `list_actions`: where a server that stops cancels one, in whatever thread, pyarrow has
        # the main thread interrupted, as if by Ctrl-C.
        list(client.do_action(_PULSE, _OPTIONS))
    except (flight.FlightError, pa.ArrowException, OSError) as error:
        log.debug("a pulse had no answer: %s", error)
