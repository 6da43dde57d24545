"""Tests that HopsFS's client connects over TLS if a job requests it, or does not connect.

There is no HopsFS here: the name node is that of a stock HDFS, behind a proxy that requires TLS
and a client certificate. The data nodes have no TLS, so no file is read.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mrflight.storage.certificates import CLIENT_CERTIFICATE, CLIENT_KEY
from tests.services.built import HOPSFS_PYTHON
from tests.services.name_node_proxy import NameNodeProxy
from tests.support.commands.driver import DriverRun, drive, write_job
from tests.support.commands.pems import Authority
from tests.support.suite.waiting import await_that

pytestmark = pytest.mark.slow

USER = "demo__ann"
JOB = """
job = { name = "tls" }
inputs.rows = { path = "URL/nothing/*.csv", key = ["k"] }
output.table = "URL/nothing/table"
storage.pem_dir = "PEMS"
storage.user = "USER"
"""


def run(folder: Path, url: str, pems: Path, python: Path | None = HOPSFS_PYTHON) -> DriverRun:
    text = JOB.replace("URL", url).replace("PEMS", str(pems)).replace("USER", USER)
    job = write_job(folder, text)
    return drive(job) if python is None else drive(job, python=python)


@pytest.fixture
def authority(name_node: NameNodeProxy, tmp_path: Path) -> Authority:
    """The authority of both the user and the name node, which listens with TLS."""
    authority = Authority()
    name_node.tls = authority.server_side(tmp_path / "node", name_node.host, authority)
    return authority


def test_the_client_connects_over_tls_with_the_users_certificate(
    name_node: NameNodeProxy, authority: Authority, tmp_path: Path
) -> None:
    done = run(tmp_path, name_node.url, authority.write_pems(tmp_path / "pems", USER))
    assert done.code == 2, done.stderr
    assert f"nothing matches hdfs://{name_node.host}:8020/nothing/*.csv" in done.message
    await_that(lambda: len(name_node.users) == name_node.connections > 0, "each handshake")
    assert set(name_node.users) == {USER}


def test_a_name_node_of_an_unknown_authority_is_refused(
    name_node: NameNodeProxy, tmp_path: Path
) -> None:
    user, other = Authority(), Authority()
    name_node.tls = other.server_side(tmp_path / "node", name_node.host, user)
    done = run(tmp_path, name_node.url, user.write_pems(tmp_path / "pems", USER))
    assert done.code == 1, done.stderr
    assert "Connection to HopsFS failed" in done.message
    assert name_node.users == []
    # A client may end before the proxy has noted what it answered to the handshake.
    await_that(lambda: len(name_node.failures) == name_node.connections > 0, "each failure")
    assert all("alert" in failure for failure in name_node.failures), name_node.failures


def without_key(pems: Path) -> str:
    (pems / CLIENT_KEY).unlink()
    return f"{pems / CLIENT_KEY} cannot be read (No such file or directory), and without it the"


def key_of_another(pems: Path) -> str:
    other = Authority().write_pems(pems.with_name("other"), USER)
    (other / CLIENT_KEY).replace(pems / CLIENT_KEY)
    return f"{pems / CLIENT_KEY} is not the key of {CLIENT_CERTIFICATE}"


@pytest.mark.parametrize("damage", [without_key, key_of_another])
def test_without_valid_certificates_there_is_no_connection(
    name_node: NameNodeProxy,
    authority: Authority,
    tmp_path: Path,
    damage: Callable[[Path], str],
) -> None:
    """The client by itself would connect without TLS."""
    pems = authority.write_pems(tmp_path / "pems", USER)
    message = damage(pems)
    done = run(tmp_path, name_node.url, pems)
    assert done.code == 2
    assert f"storage.pem_dir: {message}" in done.message
    assert name_node.connections == 0


def job_without_settings(folder: Path, url: str) -> Path:
    text = "\n".join(line for line in JOB.splitlines() if not line.startswith("storage."))
    return write_job(folder, text.replace("URL", url))


def both_spellings(name_node: NameNodeProxy) -> list[str]:
    return [name_node.url, f"hdfs://{name_node.host}:8020"]


def test_certificates_in_the_environment_are_checked(
    name_node: NameNodeProxy, authority: Authority, tmp_path: Path
) -> None:
    """The client would use them anyway."""
    pems = authority.write_pems(tmp_path / "pems", USER)
    message = key_of_another(pems)
    environment = {"PEMS_DIR": str(pems), "LIBHDFS_DEFAULT_USER": USER}
    for url in both_spellings(name_node):
        job = job_without_settings(tmp_path, url)
        done = drive(job, python=HOPSFS_PYTHON, environment=environment)
        assert done.code == 2
        assert f"storage.pem_dir: {message}" in done.message
    assert name_node.connections == 0


API = """
import sys
import mrflight
def tell(call, *arguments):
    try:
        call(*arguments)
    except mrflight.MrflightError as error:
        print(f"{type(error).__name__}: {error}")
"""


def messages_of_api(calls: str, environment: dict[str, str], *arguments: str) -> list[str]:
    """Run calls of the API in one process; return the error of each call that fails."""
    done = subprocess.run(
        [str(HOPSFS_PYTHON), "-c", API + calls, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    return done.stdout.splitlines()


def test_the_api_checks_certificates_in_the_environment(
    name_node: NameNodeProxy, tmp_path: Path
) -> None:
    """Otherwise the rows could be sent to a name node without TLS."""
    calls = """
for url, job in zip(sys.argv[1::2], sys.argv[2::2]):
    tell(mrflight.run, job)
    tell(mrflight.read_table, f"{url}/nothing/table")
"""
    arguments = []
    for number, url in enumerate(both_spellings(name_node)):
        (tmp_path / str(number)).mkdir()
        arguments += [url, str(job_without_settings(tmp_path / str(number), url))]
    lines = messages_of_api(calls, {"PEMS_DIR": str(tmp_path)}, *arguments)
    assert len(lines) == 4
    for line in lines:
        assert line.startswith(f"JobFileError: storage.pem_dir: {tmp_path}/ca_chain.pem cannot be")
    assert name_node.connections == 0


def test_a_process_cannot_change_its_user(
    name_node: NameNodeProxy, authority: Authority, tmp_path: Path
) -> None:
    calls = """
options = {"pem_dir": sys.argv[2], "user": sys.argv[2].rpartition("/")[2]}
others = {"pem_dir": sys.argv[3], "user": sys.argv[3].rpartition("/")[2]}
for each in (options, options, others, {}):
    tell(mrflight.read_table, sys.argv[1], None, each)
"""
    pems = [str(authority.write_pems(tmp_path / user, user)) for user in (USER, "demo__bob")]
    lines = messages_of_api(calls, {}, f"{name_node.url}/nothing", *pems)
    assert [line.partition(":")[0] for line in lines] == ["InputError"] * 2 + ["JobFileError"] * 2
    for line in lines[2:]:
        assert line.startswith("JobFileError: storage.pem_dir (or PEMS_DIR in the environment)")
        assert f"this process already uses {pems[0]!r}" in line
    assert set(name_node.users) == {USER}


def about(
    command: str, url: str, folder: Path, python: Path | str
) -> subprocess.CompletedProcess[str]:
    """Run a command for a table in a folder that has the certificates."""
    options = ("--storage", "pem_dir=pems", "--storage", f"user={USER}")
    return subprocess.run(
        [str(python), "-m", "mrflight", command, f"{url}/nothing", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("command", ["clean", "maintain"])
def test_commands_connect_over_tls(
    name_node: NameNodeProxy, authority: Authority, tmp_path: Path, command: str
) -> None:
    authority.write_pems(tmp_path / "pems", USER)
    done = about(command, name_node.url, tmp_path, HOPSFS_PYTHON)
    assert "Traceback" not in done.stderr
    assert "not encrypted" not in done.stderr
    assert f"hdfs://{name_node.host}:8020/nothing" in done.stderr
    await_that(lambda: len(name_node.users) == name_node.connections > 0, "each handshake")
    assert set(name_node.users) == {USER}


@pytest.mark.parametrize("command", ["clean", "maintain"])
def test_deltalake_does_not_connect_to_hopsfs(
    name_node: NameNodeProxy, authority: Authority, tmp_path: Path, command: str
) -> None:
    authority.write_pems(tmp_path / "pems", USER)
    for url in (name_node.url, f"hdfs://{name_node.host}:8020"):
        done = about(command, url, tmp_path, sys.executable)
        assert done.returncode == 2
        assert "pip install 'mrflight[hopsfs]'" in done.stderr
    assert name_node.connections == 0


def test_the_error_for_the_wrong_client_says_what_to_install(
    name_node: NameNodeProxy, authority: Authority, tmp_path: Path
) -> None:
    pems = authority.write_pems(tmp_path / "pems", USER)
    deltalake = run(tmp_path, name_node.url, pems, python=None)
    assert deltalake.code == 2
    assert "needs hops-deltalake, which replaces deltalake" in deltalake.message
    assert "pip install 'mrflight[hopsfs]'" in deltalake.message
    hops = run(tmp_path, f"hdfs://{name_node.host}:9000", pems)
    assert hops.code == 2
    assert "hops-deltalake always uses port 8020" in hops.message
    assert "pip install 'mrflight[delta]'" in hops.message
    assert name_node.connections == 0
