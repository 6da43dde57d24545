"""Tests of certificates, by OpenSSL and by real servers and clients of Flight."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from pyarrow import flight

from mrflight.errors import JobFileError, ServerUnavailableError
from mrflight.security.authority import Authority, Issued, expires, issue, new_authority
from mrflight.shuffle.wire.flight_errors import from_flight
from tests.support.suite.messages import refused
from tests.support.suite.waiting import hang_s

HOSTS = ("data-1.example.com", "*.data.svc", "127.0.0.1", "::1")
AUTHORITY = new_authority("trial", days=30)
SERVER = issue(AUTHORITY, "data-1", HOSTS, days=10)
CLIENT = issue(AUTHORITY, "clicks_project__anna", days=10)
ENDED = issue(AUTHORITY, "data-1", HOSTS, days=-1 / 1440)
STRANGER = issue(new_authority("trial", days=30), "data-1", HOSTS, days=10)


def openssl_verify(folder: Path, authority: Issued, issued: Issued, *options: str) -> str:
    """Return what ``openssl verify`` prints; it is as strict as RFC 5280."""
    (folder / "ca.pem").write_bytes(authority.certificate_pem)
    (folder / "leaf.pem").write_bytes(issued.certificate_pem)
    command = ["openssl", "verify", "-x509_strict", "-CAfile", "ca.pem", *options, "leaf.pem"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("openssl") is None, reason="install openssl")
@pytest.mark.parametrize(
    ("authority", "issued", "options", "answer"),
    [
        (AUTHORITY, SERVER, "-purpose sslserver", "leaf.pem: OK"),
        (AUTHORITY, SERVER, "-purpose sslclient", "leaf.pem: OK"),
        (AUTHORITY, CLIENT, "-purpose sslclient", "leaf.pem: OK"),
        (AUTHORITY, SERVER, "-verify_hostname data-1.example.com", "leaf.pem: OK"),
        (AUTHORITY, SERVER, "-verify_hostname a.data.svc", "leaf.pem: OK"),
        (AUTHORITY, SERVER, "-verify_hostname example.com", "hostname mismatch"),
        (AUTHORITY, SERVER, "-verify_ip 127.0.0.1", "leaf.pem: OK"),
        (AUTHORITY, SERVER, "-verify_ip ::1", "leaf.pem: OK"),
        (AUTHORITY, SERVER, "-verify_ip 127.0.0.2", "IP address mismatch"),
        (AUTHORITY, STRANGER, "", "verification failed"),
        (AUTHORITY, AUTHORITY, "-check_ss_sig", "leaf.pem: OK"),
    ],
)
def test_openssl_agrees(
    authority: Issued, issued: Issued, options: str, answer: str, tmp_path: Path
) -> None:
    assert answer in openssl_verify(tmp_path, authority, issued, *options.split())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="install openssl")
def test_who_has_a_certificate_cannot_sign_others_with_it(tmp_path: Path) -> None:
    forged = issue(Issued(SERVER.certificate_pem, SERVER.key_pem), "admin", days=1)
    (tmp_path / "between.pem").write_bytes(SERVER.certificate_pem)
    answer = openssl_verify(tmp_path, AUTHORITY, forged, "-untrusted", "between.pem")
    assert "invalid CA certificate" in answer


def test_the_first_name_of_a_certificate_is_that_of_its_owner() -> None:
    certificate = x509.load_pem_x509_certificate(SERVER.certificate_pem)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == ["data-1", *HOSTS]
    authority = x509.load_pem_x509_certificate(AUTHORITY.certificate_pem)
    limits = authority.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (limits.ca, limits.path_length) == (True, 0)


def test_a_certificate_is_valid_where_the_clock_is_a_little_behind() -> None:
    issued = issue(AUTHORITY, "data-1", days=1)
    begins = x509.load_pem_x509_certificate(issued.certificate_pem).not_valid_before_utc
    assert timedelta(minutes=4) < datetime.now(UTC) - begins < timedelta(hours=1)


def test_a_certificate_ends_no_later_than_its_authority() -> None:
    assert timedelta(days=9.9) < expires(SERVER.certificate_pem) - datetime.now(UTC)
    assert expires(SERVER.certificate_pem) - datetime.now(UTC) < timedelta(days=10)
    longer = issue(AUTHORITY, "data-1", days=100)
    assert expires(longer.certificate_pem) == expires(AUTHORITY.certificate_pem)
    chain = SERVER.certificate_pem + AUTHORITY.certificate_pem
    assert expires(chain) == expires(SERVER.certificate_pem)


@pytest.mark.parametrize(
    ("name", "hosts"),
    [
        ("", ()),
        ("a b", ()),
        ("a..b", ()),
        ("-a", ()),
        ("*.a", ()),
        ("a/b", ()),
        ("é", ()),
        ("a\n", ()),
        ("a" * 64, ()),
        (".".join(["a"] * 128), ()),
        ("a", ("",)),
        ("a", ("b:5005",)),
        ("a", ("a.*.b",)),
        ("a", ("10.0.0.0/8",)),
    ],
)
def test_what_is_no_name_is_refused(name: str, hosts: tuple[str, ...]) -> None:
    with refused(JobFileError):
        issue(AUTHORITY, name, hosts, days=1)


@pytest.mark.parametrize(
    "authority",
    [
        Authority(AUTHORITY.certificate_pem, SERVER.key_pem),
        Authority(AUTHORITY.certificate_pem, b"no key"),
        Authority(b"no certificate", AUTHORITY.key_pem),
        new_authority("old", days=0),
    ],
)
def test_an_authority_that_cannot_sign_is_refused(authority: Authority) -> None:
    with refused(JobFileError):
        issue(authority, "data-1", days=1)


def test_what_is_no_certificate_has_no_end() -> None:
    with refused(JobFileError):
        expires(AUTHORITY.key_pem)


def test_keys_are_not_shown() -> None:
    shown = repr((AUTHORITY, SERVER))
    assert shown == "(Authority(...), Issued(...))"


class Greeter(flight.FlightServerBase):
    """Answers each caller with the name in its certificate."""

    def do_action(self, context: Any, action: flight.Action) -> list[bytes]:
        return [context.peer_identity()]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of a server that believes the authority, and asks clients for certificates."""
    with Greeter(
        "grpc+tls://127.0.0.1:0",
        tls_certificates=[(SERVER.certificate_pem, SERVER.key_pem)],
        verify_client=True,
        root_certificates=AUTHORITY.certificate_pem,
    ) as server:
        yield server.port


def greeted(port: int, *, host: str = "127.0.0.1", **options: Any) -> str:
    with flight.connect(f"grpc+tls://{host}:{port}", **options) as client:
        deadline = flight.FlightCallOptions(timeout=hang_s())
        (answer,) = client.do_action(flight.Action("greet", b""), deadline)
        return bytes(answer.body.to_pybytes()).decode()


def shown_by(issued: Issued, believes: Issued = AUTHORITY, **options: Any) -> dict[str, Any]:
    return {
        "tls_root_certs": believes.certificate_pem,
        "cert_chain": issued.certificate_pem,
        "private_key": issued.key_pem,
        **options,
    }


@pytest.mark.parametrize(
    ("caller", "options", "name"),
    [
        (CLIENT, {}, "clicks_project__anna"),
        (SERVER, {}, "data-1"),  # data servers are clients of each other
        (CLIENT, {"override_hostname": "data-1"}, "clicks_project__anna"),
        (CLIENT, {"override_hostname": "b.data.svc"}, "clicks_project__anna"),
    ],
)
def test_a_server_is_told_the_name_of_its_caller(
    port: int, caller: Issued, options: dict[str, Any], name: str
) -> None:
    assert greeted(port, **shown_by(caller, **options)) == name


GIVE_ONE = r"it may want a certificate of its clients .*and that has not ended"
GIVE_CA = "give the certificate of its authority"
CALL_BY_NAME = "call it by a host of its certificate"


@pytest.mark.parametrize(
    "options",
    [
        {"tls_root_certs": AUTHORITY.certificate_pem},  # no certificate
        shown_by(STRANGER),
        shown_by(ENDED),
        shown_by(CLIENT, believes=new_authority("trial", days=1)),
        shown_by(CLIENT, override_hostname="data-2.example.com"),
        shown_by(CLIENT, host="localhost"),
        {},
    ],
)
def test_neither_side_talks_to_one_that_it_does_not_believe(
    port: int, options: dict[str, Any]
) -> None:
    with (
        refused(ServerUnavailableError),
        from_flight(f"grpc+tls://127.0.0.1:{port}", "greet"),
    ):
        greeted(port, **options)


def test_a_server_whose_certificate_has_ended_is_not_believed() -> None:
    with (
        Greeter(
            "grpc+tls://127.0.0.1:0", tls_certificates=[(ENDED.certificate_pem, ENDED.key_pem)]
        ) as server,
        refused(ServerUnavailableError),
        from_flight(f"grpc+tls://127.0.0.1:{server.port}", "greet"),
    ):
        greeted(server.port, **shown_by(CLIENT))
