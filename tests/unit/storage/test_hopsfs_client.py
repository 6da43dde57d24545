"""Tests that the installed client must match URLs and options, and has one set of settings."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from mrflight.errors import JobFileError
from mrflight.storage import hopsfs, locate
from mrflight.storage.certificates import CLIENT_KEY
from mrflight.storage.hopsfs import VARIABLES, ClientSettings, prepare
from tests.support.commands.driver import DriverRun, drive, write_job
from tests.support.commands.pems import Authority
from tests.support.suite.messages import refused

HERE = Path("/")
UNINSTALL = "pip uninstall deltalake, then pip install 'mrflight[hopsfs]'"


@pytest.fixture(autouse=True)
def _isolated_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test fresh settings and a copy of the environment."""
    monkeypatch.setattr(hopsfs, "client_settings", ClientSettings(VARIABLES))
    monkeypatch.setattr(os, "environ", os.environ.copy())
    for variable in VARIABLES.values():
        os.environ.pop(variable, None)


@pytest.fixture
def hops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that hops-deltalake is installed instead of deltalake."""
    monkeypatch.setattr(hopsfs, "_is_installed", lambda name: name == "hops-deltalake")


@pytest.fixture
def pems(tmp_path: Path) -> Path:
    return Authority().write_pems(tmp_path / "pems", "demo__ann")


def test_the_installed_client_must_match_the_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this environment deltalake is installed."""
    prepare({}, ["in.csv", "hdfs://node:9000/table", "s3://bucket/table"], HERE)
    with refused(JobFileError):
        prepare({}, ["in.csv", "hopsfs://node/t"], HERE)
    monkeypatch.setattr(hopsfs, "_is_installed", lambda name: name == "hops-deltalake")
    prepare({}, ["hopsfs://node/t", "hdfs://node/t", "hdfs://node:8020/t"], HERE)
    with refused(JobFileError):
        prepare({}, ["hdfs://node:9000/t"], HERE)


def test_hops_deltalake_uses_one_port_and_needs_it_in_every_url(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert locate("hdfs://node/t", tmp_path).url == "hdfs://node/t"
    monkeypatch.setattr(hopsfs, "_is_installed", lambda name: name == "hops-deltalake")
    for url in ("hopsfs://Node/t", "hdfs://node:8020/t", "hopsfs://[::1]/t"):
        table = locate(url, tmp_path)
        assert table.url.endswith(":8020/t")
        host = "::1" if "[" in url else "node"
        assert table.store.lock_name(table.path) == f"hopsfs://{host}:8020/t"
    for port in ("9000", "http"):
        with refused(JobFileError):
            prepare({}, [f"hopsfs://node:{port}/t"], HERE)


@pytest.mark.parametrize("url", ["HOPSFS://node/t", "hopsfs://node/t", "hdfs://node:8020/t"])
def test_deltalake_is_refused_if_tls_is_requested(url: str, pems: Path) -> None:
    """deltalake has no TLS, and would connect without it."""
    with refused(JobFileError) as caught:
        prepare({"pem_dir": str(pems)}, ["in.csv", url], HERE)
    assert url in str(caught.value)
    assert "PEMS_DIR" not in os.environ


@pytest.mark.parametrize("key", ["user", "datanode_host", "datanode_port"])
def test_deltalake_is_refused_with_options_of_hopsfs(key: str) -> None:
    with refused(JobFileError):
        prepare({key: "1"}, ["hdfs://node:8020/t"], HERE)


def test_an_unencrypted_connection_is_logged(hops: None, caplog: pytest.LogCaptureFixture) -> None:
    prepare({}, ["hdfs://node/t"], HERE)  # a stock HDFS has no TLS
    assert caplog.records == []
    prepare({}, ["in.csv", "hopsfs://node/t"], HERE)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("hopsfs://node/t: the connection is not encrypted")


def test_all_settings_reach_the_client(
    hops: None, caplog: pytest.LogCaptureFixture, pems: Path
) -> None:
    options = {
        "pem_dir": pems.name,
        "user": "demo__ann",
        "datanode_host": "node-1.example",
        "datanode_port": "9866",
    }
    prepare(options, ["hopsfs://node/t"], pems.parent)
    assert {variable: os.environ[variable] for variable in VARIABLES.values()} == {
        "PEMS_DIR": str(pems),
        "LIBHDFS_DEFAULT_USER": "demo__ann",
        "HOPSFS_CLOUD_DATANODE_HOSTNAME_OVERRIDE": "node-1.example",
        "HOPSFS_CLOUD_DATANODE_PORT_OVERRIDE": "9866",
    }
    assert caplog.records == []


@pytest.mark.parametrize("url", ["hopsfs://node/t", "hdfs://node/t", "HDFS://node:8020/t"])
def test_certificates_in_the_environment_are_always_checked(
    hops: None, pems: Path, url: str
) -> None:
    """The client always reads them, and connects without TLS if there are none."""
    os.environ["PEMS_DIR"] = str(pems)
    prepare({}, ["in.csv", url], HERE)
    (pems / CLIENT_KEY).unlink()
    with pytest.raises(JobFileError) as caught:
        prepare({}, ["in.csv", url], HERE)
    message = str(caught.value)
    assert message.startswith(f"storage.pem_dir: {pems / CLIENT_KEY} cannot be read")
    assert message.endswith(
        "PEMS_DIR in the environment names that folder: correct it, or unset "
        "PEMS_DIR to connect without TLS"
    )
    prepare({}, ["in.csv", "s3://bucket/t"], HERE)  # the client of S3 does not read them


def test_the_jobs_certificates_replace_those_in_the_environment(hops: None, pems: Path) -> None:
    os.environ["PEMS_DIR"] = "/nowhere"
    prepare({"pem_dir": str(pems)}, ["hdfs://node/t"], HERE)
    assert os.environ["PEMS_DIR"] == str(pems)


ANN = {"user": "demo__ann"}


@pytest.mark.parametrize(
    ("first", "second", "key", "shown"),
    [
        (ANN, {"user": "demo__bob"}, "user", "to 'demo__bob'.* uses 'demo__ann'"),
        (ANN, {}, "user", "to none.* uses 'demo__ann'"),
        ({}, ANN, "user", "to 'demo__ann'.* uses none"),
        ({"pem_dir": "pems"}, {}, "pem_dir", "to none.*/pems'"),
        ({"pem_dir": "pems"}, {"pem_dir": "other"}, "pem_dir", "/other'.*/pems'"),
        ({"datanode_port": "1"}, {"datanode_port": "2"}, "datanode_port", "to '2'.* uses '1'"),
        ({"datanode_host": "a"}, {}, "datanode_host", "to none.* uses 'a'"),
    ],
)
def test_the_settings_of_a_process_cannot_change(
    hops: None, pems: Path, first: dict[str, str], second: dict[str, str], key: str, shown: str
) -> None:
    Authority().write_pems(pems.with_name("other"), "demo__bob")
    for url in ("hopsfs://node/t", "hdfs://other/t"):
        prepare(first, [url], pems.parent)
    before = dict(os.environ)
    with refused(JobFileError):
        prepare(second, ["hdfs://other/t"], pems.parent)
    assert os.environ == before
    prepare({}, ["in.csv", "s3://bucket/t"], pems.parent)  # without a path in HopsFS
    prepare(first, ["hopsfs://node/t"], pems.parent)


def test_a_job_without_settings_uses_the_original_environment(hops: None, pems: Path) -> None:
    os.environ["PEMS_DIR"], os.environ["LIBHDFS_DEFAULT_USER"] = str(pems), "demo__ann"
    prepare({"user": "demo__ann"}, ["hopsfs://node/t"], HERE)
    prepare({}, ["hopsfs://node/t"], HERE)
    os.environ["LIBHDFS_DEFAULT_USER"] = "demo__bob"
    with refused(JobFileError, "storage.user"):
        prepare({}, ["hopsfs://node/t"], HERE)
    prepare({"user": "demo__ann"}, ["hopsfs://node/t"], HERE)
    assert os.environ["LIBHDFS_DEFAULT_USER"] == "demo__ann"


def test_the_settings_of_a_client_made_without_a_job_cannot_change(hops: None) -> None:
    """A worker makes such a client, with the environment of its job."""
    os.environ["LIBHDFS_DEFAULT_USER"] = "demo__ann"
    hopsfs.client_settings.freeze()
    prepare({}, ["hopsfs://node/t"], HERE)
    with refused(JobFileError, "storage.user"):
        prepare({"user": "demo__bob"}, ["hopsfs://node/t"], HERE)


def run(folder: Path, settings: str, url: str, environment: dict[str, str]) -> DriverRun:
    (folder / "in.csv").write_text("k\n1\n")
    text = f"""
        job = {{ name = "tls" }}
        inputs.rows = {{ path = "in.csv", key = ["k"] }}
        output.table = "{url}"
        {settings}
        """
    return drive(write_job(folder, text), environment=environment)


@pytest.mark.parametrize("folder", ["pems", "/nowhere"])
def test_a_job_with_the_wrong_client_is_refused_first(
    tmp_path: Path, pems: Path, folder: str
) -> None:
    """It is refused even with valid certificates, because the client does not use them."""
    done = run(tmp_path, f'storage.pem_dir = "{folder}"', "hdfs://127.0.0.1:1/table", {})
    assert done.code == 2
    message = "storage.pem_dir, for a connection to hdfs://127.0.0.1:1/table, needs hops-deltalake"
    assert done.message.startswith(message)
    assert UNINSTALL in done.message


@pytest.mark.parametrize("url", ["hdfs://127.0.0.1:1/table", "hopsfs://127.0.0.1/table", "table"])
def test_two_installed_clients_are_refused(tmp_path: Path, url: str) -> None:
    """pip leaves the files of one client and the metadata of both."""
    other = tmp_path / "other" / "hops_deltalake-1.4.0.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: hops-deltalake\nVersion: 1.4.0\n")
    before = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(other.parent), *([before] if before else [])])
    done = run(tmp_path, "", url, {"PYTHONPATH": path})
    assert done.code == 2, done.stderr
    assert "deltalake and hops-deltalake are both installed" in done.message
    assert "pip uninstall deltalake hops-deltalake, then pip install" in done.message
