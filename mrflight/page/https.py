"""The certificate of an HTTP port, which is read again when its files change."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from typing import Protocol

from mrflight.errors import JobFileError
from mrflight.security.credentials import load_pair
from mrflight.system.file_version import FileVersion, file_version

log = logging.getLogger(__name__)


class Encryption(Protocol):
    """Encrypts the connections of a server, as an `ssl.SSLContext` does."""

    def wrap_socket(self, sock: socket.socket, server_side: bool) -> socket.socket:
        """Return the encrypted connection; raise OSError if the client cannot speak TLS."""


class ServerCertificate:
    """Encrypts with the certificate that is in its file now. Safe for many threads."""

    def __init__(self, certificate: str, key: str) -> None:
        """Raise JobFileError if a file cannot be read, or they do not belong together."""
        self._files = (certificate, key)
        self._lock = threading.Lock()
        try:
            self._seen = self._versions()
            self._context = self._load()
        except OSError as error:  # ssl.SSLError is one
            raise JobFileError(
                f"--tls-certificate {certificate} with --tls-key {key} cannot be used: {error}"
            ) from error

    def wrap_socket(self, sock: socket.socket, server_side: bool) -> socket.socket:
        """Return the encrypted connection; raise OSError if the client cannot speak TLS."""
        return self._current().wrap_socket(sock, server_side=server_side)

    def _current(self) -> ssl.SSLContext:
        with self._lock:
            try:
                seen = self._versions()
                if seen != self._seen:
                    self._context, self._seen = self._load(), seen
            except (OSError, JobFileError) as error:
                # One of two files may be replaced already: the next request looks again.
                log.info("the certificate of the HTTP port stays as it was: %s", error)
            return self._context

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        load_pair(context, *self._files)
        return context

    def _versions(self) -> list[FileVersion]:
        return [file_version(each) for each in self._files]
