"""Where a server listens, with which certificate, and which callers it knows."""

from __future__ import annotations

import argparse
import logging
from dataclasses import dataclass, field, replace
from typing import Any

from mrflight.config.identity import ANONYMOUS, Identity
from mrflight.config.identity_options import identity_of
from mrflight.config.locations import is_loopback
from mrflight.errors import JobFileError
from mrflight.security.access import Access
from mrflight.security.credentials import Credentials, load

from .guard import MIDDLEWARE, Guard

log = logging.getLogger(__name__)


_ALL_ADDRESSES = {"0.0.0.0", "::", "[::]"}


@dataclass(frozen=True)
class Listening:
    """How a server listens."""

    location: str
    """Port 0 takes a free one."""
    guard: Guard = field(default_factory=Guard)
    identity: Identity = ANONYMOUS
    """Who the server is when it calls other servers."""
    certificates: dict[str, Any] = field(default_factory=dict)
    """The options of a Flight server that encrypts."""

    def with_port(self, port: int) -> Listening:
        """Return the same with the port that was taken in place of port 0."""
        if self.location.startswith("grpc+unix:"):
            return self
        return replace(self, location=f"{self.location.rpartition(':')[0]}:{port}")

    def renewed(self) -> Listening:
        """Return the same with the certificates that are in the files now."""
        verifies = bool(self.certificates["verify_client"])
        certificates = _certificates(load(self.identity), verifies=verifies)
        return replace(self, certificates=certificates)

    @property
    def options(self) -> dict[str, Any]:
        """The options of a Flight server."""
        return {"middleware": {MIDDLEWARE: self.guard}, **self.certificates}


def listening(options: argparse.Namespace) -> Listening:
    """Return how a server with these options listens.

    Raises JobFileError if other machines would reach it and calls were not encrypted, or if it
    would not know who calls, unless --insecure-network says so.
    """
    identity = identity_of(options)
    if options.host in _ALL_ADDRESSES and options.advertise is None and options.socket is None:
        raise JobFileError(
            f"--host {options.host} is every address of this machine, and clients have to be told "
            "one: add --advertise grpc+tls://HOST:PORT"
        )
    access = None if options.access is None else Access(options.access)
    if options.socket is not None:
        return Listening(f"grpc+unix://{options.socket}", Guard(access), identity)
    if options.tls_certificate is None:
        _check_plain(options, is_known=access is not None)
        return Listening(f"grpc+tcp://{options.host}:{options.port}", Guard(access), identity)
    return over_tls(options, identity)


def over_tls(options: argparse.Namespace, identity: Identity) -> Listening:
    """Return how a server listens that encrypts with the certificate of its identity."""
    host, port = options.host, options.port
    credentials = load(identity)
    verifies = bool(options.verify_client)
    if verifies and credentials.ca is None:
        raise JobFileError("--verify-client needs --tls-ca, which signs the clients' certificates")
    if not verifies and options.access is None:
        if not options.insecure_network:
            raise JobFileError(
                "the server would encrypt and not know who calls; add --verify-client, or --access "
                "with a file of tokens, or --insecure-network if everybody may do everything"
            )
        log.warning("%s: whoever reaches port %s reads and changes all rows", host, port)
    access = Access(options.access) if verifies or options.access is not None else None
    return Listening(
        f"grpc+tls://{host}:{port}",
        Guard(access, trusts_certificates=verifies),
        identity,
        _certificates(credentials, verifies=verifies),
    )


def _certificates(credentials: Credentials, *, verifies: bool) -> dict[str, Any]:
    return {
        "tls_certificates": [(credentials.certificate, credentials.key)],
        "verify_client": verifies,
        "root_certificates": credentials.ca if verifies else None,
    }


def _check_plain(options: argparse.Namespace, *, is_known: bool) -> None:
    """Raise JobFileError if what is sent could be read on a network, and is not to be."""
    if options.verify_client:
        raise JobFileError("--verify-client needs --tls-certificate, --tls-key and --tls-ca")
    if is_loopback(options.host):
        return
    if not options.insecure_network:
        raise JobFileError(
            f"--host {options.host}: other machines reach this address, so calls must be encrypted "
            "and authenticated: add --tls-certificate, --tls-key, --tls-ca and --verify-client "
            "(`mrflight certificates` makes some for a trial), or use 127.0.0.1"
        )
    log.warning(
        "%s (--insecure-network): rows are sent in the clear%s",
        options.host,
        "" if is_known else ", and whoever reaches the port reads and changes all of them",
    )
