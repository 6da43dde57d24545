"""The files of an identity that cannot be used: each is refused in a sentence that says why."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from mrflight.config.identity import Identity
from mrflight.errors import JobFileError
from mrflight.page.https import ServerCertificate
from mrflight.security import credentials
from mrflight.security.authority import issue, new_authority
from mrflight.security.credentials import load
from tests.support.suite.messages import refused

AUTHORITY = new_authority("trial", days=1)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    (folder / "ca.pem").write_bytes(AUTHORITY.certificate_pem)
    for name in ("etl", "other"):
        issued = issue(AUTHORITY, name, days=1)
        (folder / f"{name}.pem").write_bytes(issued.certificate_pem)
        (folder / f"{name}.key").write_bytes(issued.key_pem)
    key = load_pem_private_key((folder / "etl.key").read_bytes(), None)
    locked = key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"a pass phrase")
    )
    (folder / "locked.key").write_bytes(locked)
    (folder / "described.pem").write_bytes("Autorité\n".encode() + AUTHORITY.certificate_pem)
    return folder


def identity(folder: Path, ca: str, certificate: str, key: str) -> Identity:
    return Identity(*(str(folder / each) for each in (ca, certificate, key)))


def test_an_identity_names_no_module_that_gets_its_credentials() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"given": "it", "giver": "payload"}, Identity)
    other = msgspec.structs.replace(Identity(given="it"), giver="payload")
    with pytest.raises(JobFileError, match="only its processes have certificates"):
        load(other)
    assert all(map(find_spec, credentials._GIVERS.values()))


@pytest.mark.parametrize(
    "named",
    [
        ("no.pem", "etl.pem", "etl.key"),
        ("etl.key", "etl.pem", "etl.key"),
        ("ca.pem", "no.pem", "etl.key"),
        ("ca.pem", "etl.pem", "other.key"),
        ("ca.pem", "etl.pem", "locked.key"),
    ],
)
def test_files_that_cannot_be_used_are_named(
    files: Path, named: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mrflight.security.credentials._REPLACING_S", 0.0)
    with refused(JobFileError):
        load(identity(files, *named))


def test_an_http_port_asks_nobody_for_a_pass_phrase(files: Path) -> None:
    with refused(JobFileError):
        ServerCertificate(str(files / "etl.pem"), str(files / "locked.key"))


@pytest.mark.parametrize("ca", ["ca.pem", "described.pem"])
def test_what_is_beside_a_certificate_in_its_file_does_not_matter(files: Path, ca: str) -> None:
    loaded = load(identity(files, ca, "etl.pem", "etl.key"))
    assert loaded.ca == (files / ca).read_bytes()
