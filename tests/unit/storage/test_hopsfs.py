"""Tests that the options for HopsFS are checked, as its client connects without TLS otherwise."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

from mrflight.errors import JobFileError
from mrflight.storage.certificates import CA_CHAIN, CLIENT_CERTIFICATE, CLIENT_KEY
from mrflight.storage.hopsfs import client_environment

NOW = datetime(2026, 6, 1, tzinfo=UTC)
DAY = timedelta(days=1)
Key = ec.EllipticCurvePrivateKey


def new_key() -> Key:
    return ec.generate_private_key(ec.SECP256R1())


def certificate(
    name: str, key: Key, begins: datetime = NOW - DAY, ends: datetime = NOW + DAY
) -> bytes:
    """Return a certificate signed by its own key; only the server checks the signature."""
    names = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(names)
        .issuer_name(names)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(begins)
        .not_valid_after(ends)
    )
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def key_text(key: Key, password: bytes | None = None) -> bytes:
    encryption = NoEncryption() if password is None else BestAvailableEncryption(password)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


@pytest.fixture
def pems(tmp_path: Path) -> Path:
    """A folder of certificates as administrators of HopsFS give it to users."""
    key, authority = new_key(), new_key()
    (tmp_path / CA_CHAIN).write_bytes(
        certificate("root", authority) + certificate("between", authority)
    )
    (tmp_path / CLIENT_CERTIFICATE).write_bytes(certificate("demo__ann", key))
    (tmp_path / CLIENT_KEY).write_bytes(key_text(key))
    return tmp_path


def refusal(folder: Path) -> str:
    with pytest.raises(JobFileError) as caught:
        client_environment({"pem_dir": str(folder)}, folder, NOW)
    return str(caught.value)


def test_valid_options_become_variables_of_the_client(pems: Path) -> None:
    options = {
        "pem_dir": str(pems),
        "user": "demo__ann",
        "datanode_host": "node-1.example",
        "datanode_port": "9866",
        "aws_region": "for others",
    }
    assert client_environment(options, pems, NOW) == {
        "PEMS_DIR": str(pems),
        "LIBHDFS_DEFAULT_USER": "demo__ann",
        "HOPSFS_CLOUD_DATANODE_HOSTNAME_OVERRIDE": "node-1.example",
        "HOPSFS_CLOUD_DATANODE_PORT_OVERRIDE": "9866",
    }
    assert client_environment({}, pems, NOW) == {}
    relative = {"pem_dir": pems.name}
    assert client_environment(relative, pems.parent, NOW) == {"PEMS_DIR": str(pems)}


@pytest.mark.parametrize("name", [CA_CHAIN, CLIENT_CERTIFICATE, CLIENT_KEY])
def test_a_missing_or_unreadable_file_is_refused(pems: Path, name: str) -> None:
    (pems / name).unlink()
    message = refusal(pems)
    assert message.startswith(f"storage.pem_dir: {pems / name} cannot be read (No such file")
    assert message.endswith("without it the client would connect unencrypted")
    (pems / name).mkdir()
    assert f"{name} cannot be read (Is a directory)" in refusal(pems)


@pytest.mark.parametrize(
    ("name", "what"),
    [(CA_CHAIN, "certificates"), (CLIENT_CERTIFICATE, "certificates"), (CLIENT_KEY, "private key")],
)
@pytest.mark.parametrize("text", [b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n", b"\xff\x00"])
def test_a_file_without_certificates_or_key_is_refused(
    pems: Path, name: str, what: str, text: bytes
) -> None:
    (pems / name).write_bytes(text)
    assert re.match(rf"storage\.pem_dir: .*{name} contains no {what}", refusal(pems))


@pytest.mark.parametrize(
    ("begins", "ends", "reason"),
    [
        (NOW - 9 * DAY, NOW - DAY, "expired on 2026-05-31"),
        (NOW + DAY, NOW + 9 * DAY, "is not valid before 2026-06-02"),
    ],
)
@pytest.mark.parametrize("name", [CA_CHAIN, CLIENT_CERTIFICATE])
def test_an_expired_or_future_certificate_is_refused(
    pems: Path, name: str, begins: datetime, ends: datetime, reason: str
) -> None:
    key = new_key()
    (pems / CLIENT_KEY).write_bytes(key_text(key))
    (pems / CLIENT_CERTIFICATE).write_bytes(certificate("demo__ann", key))
    old = certificate("the old one", key, begins, ends)
    before = (pems / name).read_bytes() if name == CA_CHAIN else b""
    (pems / name).write_bytes(before + old)
    expected = f"storage.pem_dir: {pems / name}: the certificate of CN=the old one {reason}"
    assert refusal(pems) == expected


def other_key(pems: Path) -> bytes:
    return key_text(new_key())


def encrypted_key(pems: Path) -> bytes:
    return key_text(new_key(), b"secret")


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (other_key, f"is not the key of {CLIENT_CERTIFICATE}"),
        (encrypted_key, "is encrypted; the client needs an unencrypted key"),
    ],
)
def test_a_key_that_the_client_cannot_use_is_refused(
    pems: Path, key: Callable[[Path], bytes], reason: str
) -> None:
    (pems / CLIENT_KEY).write_bytes(key(pems))
    assert refusal(pems) == f"storage.pem_dir: {pems / CLIENT_KEY} {reason}"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("user", user) for user in ("", "ann", "demo_ann", "__ann", "demo__", "demo__a b")),
        *(("datanode_host", host) for host in ("", "a b", "http://node", "node:9866")),
        *(("datanode_port", port) for port in ("", "0", "65536", "-1", "9866 ", "²", "http")),
    ],
)
def test_invalid_users_hosts_and_ports_are_refused(key: str, value: str) -> None:
    with pytest.raises(JobFileError, match=rf"storage\.{key}: "):
        client_environment({key: value}, Path("/"), NOW)
