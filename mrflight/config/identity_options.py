"""The options with which a command says who it is, and whom it trusts."""

from __future__ import annotations

import argparse
from pathlib import Path

from mrflight.config.identity import Identity
from mrflight.config.secret_reference import check_reference
from mrflight.errors import JobFileError


def add_identity_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of a client; servers are clients of each other."""
    group = parser.add_argument_group("certificates and tokens")
    group.add_argument(
        "--tls-ca",
        type=Path,
        metavar="FILE",
        help="the certificates of the authority that signs servers' and clients' certificates",
    )
    group.add_argument(
        "--tls-certificate", type=Path, metavar="FILE", help="the own certificate, in PEM"
    )
    group.add_argument("--tls-key", type=Path, metavar="FILE", help="the key of --tls-certificate")
    group.add_argument(
        "--token",
        metavar="env:NAME|file:PATH",
        default="",
        help="where the own bearer token is, for servers that want one",
    )


def identity_of(options: argparse.Namespace) -> Identity:
    """Return the identity that the options describe; raises JobFileError."""
    if (options.tls_certificate is None) != (options.tls_key is None):
        raise JobFileError("--tls-certificate and --tls-key belong together; give both, or none")
    if options.token:
        check_reference(options.token, "--token")
    files = (options.tls_ca, options.tls_certificate, options.tls_key)
    ca, certificate, key = ("" if file is None else str(file.absolute()) for file in files)
    return Identity(ca, certificate, key, options.token)
