"""A Flight server that takes new certificates without losing a call.

Flight reads certificates once, when a server is made. So another server is made for the same port,
which takes all calls from then on, and the one before ends once its calls have. In between nobody
listens for some milliseconds. Our own clients try again: see
`mrflight.shuffle.wire.secure_client`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import pyarrow as pa
from pyarrow import flight

from mrflight.errors import MrflightError
from mrflight.system.closeable import Closeable
from mrflight.system.file_version import FileVersion, file_version

from .expiry import ExpiryWarning
from .listening import Listening

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0
_LISTEN_AGAIN_S = 10.0
"""How long the port may stay taken by the server before. It took 2 to 50 ms when tried."""
_RETRY_S = 0.001


class RotatingServer(Closeable):
    """Runs what ``make`` makes, and replaces it when a file of its certificates changes."""

    def __init__(self, at: Listening, make: Callable[[Listening], flight.FlightServerBase]) -> None:
        self._make = make
        named = (at.identity.ca, at.identity.certificate, at.identity.key)
        self._files = [file for file in named if file]
        self._seen = self._look()
        self._server = make(at)
        self._at = at.with_port(self._server.port)
        self._ending: list[threading.Thread] = []
        self._changing = threading.Lock()
        self._stopping = threading.Event()
        self._expiry = ExpiryWarning(at.identity.certificate)
        self._thread = threading.Thread(target=self._watch, name="certificates", daemon=True)
        if at.certificates and self._files:
            self._thread.start()

    @property
    def port(self) -> int:
        """The port, which stays the same."""
        port: int = self._server.port
        return port

    @property
    def certificate_ends_at(self) -> float | None:
        """When the server's certificate ends, in seconds since 1970; None without a certificate."""
        return self._expiry.ends_at

    def reload(self) -> None:
        """Read the certificates again, and go on with those from before if they are not right."""
        if not self._at.certificates or not self._files:
            return
        with self._changing:
            if self._stopping.is_set():
                return
            seen = self._look()
            try:
                renewed = self._at.renewed()
            except MrflightError as error:
                log.warning("certificates that have changed are not taken yet: %s", error)
                return
            if self._look() == seen:  # nobody was writing meanwhile
                self._replace(renewed)
                self._seen = seen

    def shutdown(self) -> None:
        """Stop listening, and return once all calls have ended."""
        self._stopping.set()
        with self._changing:
            self._server.shutdown()
            for ending in self._ending:
                ending.join()

    def close(self) -> None:
        self.shutdown()

    def _replace(self, at: Listening) -> None:
        began = time.monotonic()
        before = self._server
        ending = threading.Thread(target=before.shutdown, name="old certificate", daemon=True)
        ending.start()
        self._ending = [each for each in (*self._ending, ending) if each.is_alive()]
        self._server = self._made(at, began + _LISTEN_AGAIN_S)
        self._at = at
        self._expiry = ExpiryWarning(at.identity.certificate)
        log.info(
            "new certificates at %s, after %.0f ms", at.location, 1000 * (time.monotonic() - began)
        )

    def _made(self, at: Listening, until: float) -> flight.FlightServerBase:
        while True:
            try:
                return self._make(at)
            except (pa.ArrowException, OSError):
                if time.monotonic() >= until:
                    raise
                time.sleep(_RETRY_S)

    def _watch(self) -> None:
        self._expiry.warn_once()
        while not self._stopping.wait(_LOOK_EVERY_S):
            self._expiry.warn_once()
            if self._look() != self._seen:
                try:
                    self.reload()
                except Exception:  # otherwise the thread would end silently
                    log.exception("new certificates could not be taken; it is tried again")

    def _look(self) -> list[FileVersion]:
        return [file_version(each) for each in self._files]
