"""Checks of a user's certificates for HopsFS; its client would go on without them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from mrflight.errors import JobFileError

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

CA_CHAIN, CLIENT_CERTIFICATE, CLIENT_KEY = "ca_chain.pem", "client_cert.pem", "client_key.pem"
"""The file names that the client looks for."""


def check_certificates(folder: Path, now: datetime) -> None:
    """Raise JobFileError, with the key path, if the client could not use the files ``now``."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError as error:
        raise _invalid(
            "checking the certificates needs cryptography, which is not installed: pip install "
            "'mrflight[hopsfs]'"
        ) from error
    texts = {name: _read(folder, name) for name in (CA_CHAIN, CLIENT_CERTIFICATE, CLIENT_KEY)}
    certificates = {}
    for name in (CA_CHAIN, CLIENT_CERTIFICATE):
        try:
            certificates[name] = x509.load_pem_x509_certificates(texts[name])
        except ValueError as error:
            raise _invalid(f"{folder / name} contains no certificates: {error}") from error
    for name, chain in certificates.items():
        for certificate in chain:
            _check_time(certificate, folder / name, now)
    try:
        key = load_pem_private_key(texts[CLIENT_KEY], password=None)
    except TypeError as error:
        raise _invalid(
            f"{folder / CLIENT_KEY} is encrypted; the client needs an unencrypted key"
        ) from error
    except ValueError as error:
        raise _invalid(f"{folder / CLIENT_KEY} contains no private key: {error}") from error
    if key.public_key() != certificates[CLIENT_CERTIFICATE][0].public_key():
        raise _invalid(f"{folder / CLIENT_KEY} is not the key of {CLIENT_CERTIFICATE}")


def _read(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except OSError as error:
        raise _invalid(
            f"{folder / name} cannot be read ({error.strerror}), and without it the client would "
            "connect unencrypted",
        ) from error


def _check_time(certificate: Certificate, path: Path, now: datetime) -> None:
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    name = certificate.subject.rfc4514_string()
    if now > ends:
        raise _invalid(f"{path}: the certificate of {name} expired on {ends:%Y-%m-%d}")
    if now < begins:
        raise _invalid(f"{path}: the certificate of {name} is not valid before {begins:%Y-%m-%d}")


def _invalid(what: str) -> JobFileError:
    return JobFileError(f"storage.pem_dir: {what}")
