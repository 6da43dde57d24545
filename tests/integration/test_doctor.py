"""``mrflight doctor`` looks at a cluster that encrypts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrflight.frontend import cli
from mrflight.security.authority import Authority, issue, new_authority
from tests.support.clusters.cluster import data_server, server_process
from tests.support.suite.waiting import hang_s

JOB = """
[job]
name = "job"

[inputs.visits]
path = "visits.csv"

[output]
table = "out"
format = "parquet"

[cluster]
metadata = "{location}"

[cluster.tls]
ca = "ca.pem"
certificate = "client.pem"
key = "client.key"
"""


@pytest.fixture(scope="module")
def authority() -> Authority:
    return new_authority("trial", days=30)


@pytest.fixture(scope="module")
def folder(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of a server and of clients; that of the server ends in 10 days."""
    folder = tmp_path_factory.mktemp("certificates")
    (folder / "ca.pem").write_bytes(authority.certificate_pem)
    for name, days in (("server", 10.0), ("client", 20.0), ("late", 0.0)):
        issued = issue(authority, name, ["127.0.0.1"], days=days)
        (folder / f"{name}.pem").write_bytes(issued.certificate_pem)
        (folder / f"{name}.key").write_bytes(issued.key_pem)
    return folder


def certificates(folder: Path, name: str) -> list[str]:
    files = {"ca": "ca.pem", "certificate": f"{name}.pem", "key": f"{name}.key"}
    return [word for kind, file in files.items() for word in (f"--tls-{kind}", str(folder / file))]


@pytest.fixture(scope="module")
def metadata(folder: Path) -> Iterator[str]:
    """The location of a metadata server that takes calls from clients with certificates."""
    options = ["--port", "0", "--verify-client", *certificates(folder, "server")]
    with server_process("metadata", *options) as (_, ready):
        yield ready.split()[-1]


def doctor(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, str]]:
    """Return the exit code, and the states of what is not ok, or is about the cluster."""
    code = cli.main(["doctor", "--json", f"--timeout={hang_s():.0f} s", *arguments])
    found = json.loads(capsys.readouterr().out)["findings"]
    states = {each["check"]: each["state"] for each in found}
    return code, {k: v for k, v in states.items() if v != "ok" or "grpc" in k or k == "clock"}


def test_a_cluster_without_data_servers_has_a_problem(
    metadata: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--cluster", metadata, *certificates(folder, "client")]
    expected = {f"certificate of {metadata}": "warning", metadata: "problem", "clock": "ok"}
    assert doctor(capsys, *options) == (1, expected)


def test_the_cluster_of_a_job_is_looked_at(
    metadata: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "visits.csv").write_text("url\na\n")
    (folder / "job.toml").write_text(JOB.format(location=metadata))
    with data_server(metadata, "--verify-client", *certificates(folder, "server")):
        code, found = doctor(capsys, str(folder / "job.toml"))
    assert (code, found[metadata], found["clock"]) == (0, "ok", "ok")


def test_a_cluster_that_does_not_believe_its_caller_is_a_problem(
    metadata: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The certificate has ended, which is found in the file as well."""
    code, found = doctor(capsys, "--cluster", metadata, *certificates(folder, "late"))
    assert code == 1
    assert found[metadata] == found[f"certificate {folder / 'late.pem'}"] == "problem"


def test_a_cluster_that_is_not_there_is_a_problem(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nobody = "grpc+tls://127.0.0.1:9"
    code, found = doctor(capsys, "--cluster", nobody, *certificates(folder, "client"))
    assert (code, found) == (1, {f"certificate of {nobody}": "problem", nobody: "problem"})
