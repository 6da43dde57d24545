"""The certificates and the token of a client, read where it connects."""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec

from mrflight.config.identity import Identity
from mrflight.config.secret_reference import resolve
from mrflight.errors import JobFileError

if TYPE_CHECKING:
    import ssl


class Credentials(msgspec.Struct, frozen=True):
    """What a client shows to servers, and what it checks their certificates with. All is PEM."""

    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = None
    token: str = ""
    server_name: str = ""
    """The name that servers' certificates have, if it is not the host in their locations."""
    name: str = ""
    """The name of credentials that are given to processes: see `Identity.given`."""

    def __repr__(self) -> str:
        """Hide the secrets, as tracebacks and logs may show this."""
        return f"{type(self).__name__}(...)"


_REPLACING_S = 1.0
_LOOK_AGAIN_S = 0.02
"""How long, and how often, a certificate and a key that do not belong together are read again."""

_GIVERS = {"ray": "mrflight.runtime.ray.credential_actor"}
"""The modules whose ``fetch(name)`` gets credentials. No identity can name another one."""

_given: dict[str, Credentials] = {}


def give(credentials: Credentials) -> None:
    """Give this process credentials, for the `Identity` that has their name."""
    _given[credentials.name] = credentials


def load(identity: Identity) -> Credentials:
    """Return the credentials of an identity; raise JobFileError if a file cannot be read."""
    if identity.given:
        return _given_or_fetched(identity)
    certificate, key = _read_pair(identity) if identity.certificate else (None, None)
    token = resolve(identity.token, "cluster.token, or --token") if identity.token else ""
    return Credentials(_read_ca(identity.ca) if identity.ca else None, certificate, key, token)


def load_pair(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Load a certificate and its key from their files.

    Raises JobFileError if the key has a pass phrase, which OpenSSL would ask for at the terminal,
    and OSError if they cannot be read or do not belong together.
    """

    def refuse() -> NoReturn:
        raise JobFileError(
            f"tls.key: {key} has a pass phrase, which nobody can enter; write the key without one: "
            f"(umask 077; openssl pkey -in {key} -out NEW.key)"
        )

    context.load_cert_chain(certificate, key, refuse)


def _given_or_fetched(identity: Identity) -> Credentials:
    found = _given.get(identity.given)
    if found is None and identity.giver in _GIVERS:
        fetched: Credentials = importlib.import_module(_GIVERS[identity.giver]).fetch(
            identity.given
        )
        give(fetched)
        return fetched
    if found is None:
        raise JobFileError(
            "these servers are a job's own, and only its processes have certificates for them; use "
            "the shuffle in the job, or run a standing cluster (mrflight serve)"
        )
    return found


def _read_pair(identity: Identity) -> tuple[bytes, bytes]:
    """Return a certificate and its key. Both may be replaced while they are read, one by one."""
    import ssl  # 10 ms, which only certificates cost

    until = time.monotonic() + _REPLACING_S
    while True:
        pair = _both(identity)
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            load_pair(context, identity.certificate, identity.key)
        except OSError as error:  # ssl.SSLError is one
            if time.monotonic() >= until:
                raise JobFileError(
                    f"tls.key: {identity.key} is not the key of {identity.certificate}, or one of "
                    f"them is none: {error}"
                ) from error
        else:
            if _both(identity) == pair:
                return pair
        time.sleep(_LOOK_AGAIN_S)


def _both(identity: Identity) -> tuple[bytes, bytes]:
    return _read(identity.certificate, "certificate"), _read(identity.key, "key")


def _read_ca(path: str) -> bytes:
    import ssl

    pem = _read(path, "ca")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(
            cadata=pem.decode("ascii", errors="ignore")
        )
    except (ssl.SSLError, ValueError) as error:
        raise JobFileError(
            f"tls.ca: {path} has no certificate in PEM; name the file of the authority's "
            "certificate, such as ca.pem"
        ) from error
    return pem


def _read(path: str, key: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise JobFileError(f"tls.{key}: {path} cannot be read: {error.strerror}") from error
