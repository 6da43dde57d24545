"""The certificates and the token of a client, read where it connects."""

from __future__ import annotations

from pathlib import Path

import msgspec

from mrflight.config.identity import Identity
from mrflight.config.secret_reference import resolve
from mrflight.errors import JobFileError


class Credentials(msgspec.Struct, frozen=True):
    """What a client shows to servers, and what it checks their certificates with. All is PEM."""

    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = None
    token: str = ""
    server_name: str = ""
    """The name that servers' certificates have, if it is not the host in their locations."""

    def __repr__(self) -> str:
        """Hide the secrets, as tracebacks and logs may show this."""
        return f"{type(self).__name__}(...)"


_of_process: Credentials | None = None


def become(credentials: Credentials) -> None:
    """Make these the credentials of this process, for each `Identity` that is of the process."""
    global _of_process
    _of_process = credentials


def load(identity: Identity) -> Credentials:
    """Return the credentials of an identity; raise JobFileError if a file cannot be read."""
    if identity.is_of_process:
        if _of_process is None:
            raise JobFileError(
                "the shuffle is one of a job's own, whose certificates only the processes of that "
                "job have; use it in them, or run a standing cluster (mrflight serve)"
            )
        return _of_process
    return Credentials(
        _read(identity.ca, "ca"),
        _read(identity.certificate, "certificate"),
        _read(identity.key, "key"),
        resolve(identity.token, "cluster.token") if identity.token else "",
    )


def _read(path: str, key: str) -> bytes | None:
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise JobFileError(f"tls.{key}: {path} cannot be read: {error.strerror}") from error
