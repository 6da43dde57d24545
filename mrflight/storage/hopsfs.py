"""HopsFS over TLS: what its client takes from the environment, checked first.

Without certificates the client connects unencrypted and says nothing of it. So where TLS is
asked for, by ``pem_dir``, a certificate that is not there, or of no use, is an error here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mrflight.errors import JobFileError

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

CA_CHAIN, CLIENT_CERTIFICATE, CLIENT_KEY = "ca_chain.pem", "client_cert.pem", "client_key.pem"
"""The names that the client looks for."""

_PROJECT_USER = re.compile(r"[A-Za-z0-9_]+?__[A-Za-z0-9_-]+")
_HOST = re.compile(r"[A-Za-z0-9.\-]+|\[[0-9A-Fa-f:]+\]")

HOPS_PORT = 8020

SETTINGS = ("pem_dir", "user", "datanode_host", "datanode_port")
"""Keys of ``[storage]`` that are ours; the others go to the client as they are."""


def prepare(options: Mapping[str, str], paths: Iterable[str]) -> None:
    """Set what the client reads when it is loaded: before deltalake is imported.

    Processes that are started later inherit it. Raises as `client_environment` does, and
    JobFileError where another client than that of these ``paths`` is installed.
    """
    _check_client(paths)
    os.environ.update(client_environment(options, datetime.now(UTC)))


def client_environment(options: Mapping[str, str], now: datetime) -> dict[str, str]:
    """What the client reads from the environment, of these settings.

    JobFileError, with the key path, for what cannot be used: a certificate that is missing,
    unreadable, not valid ``now``, or that the key does not belong to; a user that is none of a
    project; a host or port that cannot be one.
    """
    found = {}
    if "pem_dir" in options:
        folder = Path(options["pem_dir"])
        _check_certificates(folder, now)
        found["PEMS_DIR"] = str(folder.resolve())
    if "user" in options:
        if not _PROJECT_USER.fullmatch(options["user"]):
            raise _wrong("user", f"{options['user']!r} is not of the form <project>__<name>")
        found["LIBHDFS_DEFAULT_USER"] = options["user"]
    if "datanode_host" in options:
        if not _HOST.fullmatch(options["datanode_host"]):
            raise _wrong("datanode_host", f"{options['datanode_host']!r} is no host's name")
        found["HOPSFS_CLOUD_DATANODE_HOSTNAME_OVERRIDE"] = options["datanode_host"]
    if "datanode_port" in options:
        port = options["datanode_port"]
        if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
            raise _wrong("datanode_port", f"{port!r} is no port: it is a number up to 65535")
        found["HOPSFS_CLOUD_DATANODE_PORT_OVERRIDE"] = port
    return found


def is_client() -> bool:
    """Whether what is imported as deltalake is hops-deltalake."""
    return _is_installed("hops-deltalake")


def _check_client(paths: Iterable[str]) -> None:
    """JobFileError where the installed deltalake is not the one for these URLs.

    What is not installed at all is told where it is imported.
    """
    schemes = {path.partition("://")[0]: path for path in paths}
    if schemes.keys().isdisjoint({"hdfs", "hopsfs"}):
        return
    is_hops = is_client()
    if "hopsfs" in schemes and not is_hops:
        raise JobFileError(
            f"{schemes['hopsfs']} needs hops-deltalake, which takes the place of deltalake: pip "
            "uninstall deltalake, then pip install 'mrflight[hopsfs]'"
        )
    if "hopsfs" in schemes and _other_port(schemes["hopsfs"]):
        raise JobFileError(
            f"{schemes['hopsfs']}: hops-deltalake asks port {HOPS_PORT} whatever a URL says; leave "
            "the port out"
        )
    if "hdfs" in schemes and is_hops and _other_port(schemes["hdfs"]):
        raise JobFileError(
            f"{schemes['hdfs']}: hops-deltalake asks port {HOPS_PORT} whatever a URL says; pip "
            "uninstall hops-deltalake, then pip install 'mrflight[delta]'"
        )


def _other_port(url: str) -> bool:
    try:
        return urlsplit(url).port not in (None, HOPS_PORT)
    except ValueError:  # it is no number
        return True


@lru_cache(maxsize=1)  # it looks through folders
def _is_installed(name: str) -> bool:
    from importlib import metadata

    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _check_certificates(folder: Path, now: datetime) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    texts = {name: _read(folder, name) for name in (CA_CHAIN, CLIENT_CERTIFICATE, CLIENT_KEY)}
    certificates = {}
    for name in (CA_CHAIN, CLIENT_CERTIFICATE):
        try:
            certificates[name] = x509.load_pem_x509_certificates(texts[name])
        except ValueError as error:
            raise _wrong("pem_dir", f"{folder / name} holds no certificates: {error}") from error
    for name, chain in certificates.items():
        for certificate in chain:
            _check_time(certificate, folder / name, now)
    try:
        key = load_pem_private_key(texts[CLIENT_KEY], password=None)
    except TypeError as error:
        raise _wrong(
            "pem_dir", f"{folder / CLIENT_KEY} is encrypted, which the client cannot read"
        ) from error
    except ValueError as error:
        raise _wrong("pem_dir", f"{folder / CLIENT_KEY} holds no private key: {error}") from error
    if key.public_key() != certificates[CLIENT_CERTIFICATE][0].public_key():
        raise _wrong("pem_dir", f"{folder / CLIENT_KEY} is not the key of {CLIENT_CERTIFICATE}")


def _read(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except OSError as error:
        raise _wrong(
            "pem_dir",
            f"{folder / name} cannot be read ({error.strerror}), and without it the client would "
            "connect unencrypted",
        ) from error


def _check_time(certificate: Certificate, path: Path, now: datetime) -> None:
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    name = certificate.subject.rfc4514_string()
    if now > ends:
        raise _wrong("pem_dir", f"{path}: the certificate of {name} expired on {ends:%Y-%m-%d}")
    if now < begins:
        raise _wrong(
            "pem_dir", f"{path}: the certificate of {name} is not valid before {begins:%Y-%m-%d}"
        )


def _wrong(key: str, what: str) -> JobFileError:
    return JobFileError(f"storage.{key}: {what}")
