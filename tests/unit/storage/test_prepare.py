"""Tests that settings reach the workers, which read them from the environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mrflight.config.job_file import decode_job
from mrflight.errors import JobFileError
from mrflight.storage import hopsfs
from mrflight.storage.hopsfs import VARIABLES
from mrflight.storage.option_checks import prepare_storage
from tests.support.commands.driver import drive, write_job
from tests.support.suite.messages import refused

ON_RAY = """
job = { name = "tls" }
inputs.rows = { path = "in.csv", key = ["k"] }
output.table = "out"
cluster = { executor = "ray", ray_address = "127.0.0.1:1" }
storage.pem_dir = "pems"
"""


@pytest.mark.parametrize("key", VARIABLES)
def test_settings_of_hopsfs_are_refused_with_a_running_ray(key: str, tmp_path: Path) -> None:
    cluster = {"executor": "ray", "ray_address": "auto"}
    document = {
        "job": {"name": "tls"},
        "inputs": {"rows": {"path": "in.csv", "key": ["k"]}},
        "output": {"table": "out"},
        "storage": {key: "1"},
        "cluster": cluster,
    }
    with pytest.raises(JobFileError) as caught:
        prepare_storage(decode_job(document), tmp_path)
    message = str(caught.value)
    assert message.startswith(
        f"storage.{key} (or {VARIABLES[key]} in the environment) does not reach"
    )
    assert ("without TLS" in message) == (key == "pem_dir")
    assert "remove cluster.ray_address, so that the job starts its own Ray" in message


def test_pems_dir_in_the_environment_is_refused_with_a_running_ray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client of this process reads the variable by itself, also for ``hdfs://``."""
    monkeypatch.setattr(hopsfs, "_is_installed", lambda name: name == "hops-deltalake")
    monkeypatch.setenv("PEMS_DIR", str(tmp_path))
    document = {
        "job": {"name": "tls"},
        "inputs": {"rows": {"path": "in.csv", "key": ["k"]}},
        "output": {"table": "hdfs://node/out"},
        "cluster": {"executor": "ray", "ray_address": "auto"},
    }
    with refused(JobFileError, "storage.pem_dir"):
        prepare_storage(decode_job(document), tmp_path)


@pytest.mark.parametrize("cluster", [{"executor": "ray"}, {"executor": "local"}, {}])
def test_settings_reach_processes_that_the_job_starts(
    cluster: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = VARIABLES["user"]
    monkeypatch.setenv(variable, "nobody__before")
    document = {
        "job": {"name": "tls"},
        "inputs": {"rows": {"path": "in.csv", "key": ["k"]}},
        "output": {"table": "out"},
        "storage": {"user": "demo__ann"},
        "cluster": cluster,
    }
    prepare_storage(decode_job(document), tmp_path)
    assert os.environ[variable] == "demo__ann"


def test_the_job_is_refused_before_it_connects_to_ray(tmp_path: Path) -> None:
    done = drive(write_job(tmp_path, ON_RAY))
    assert done.code == 2
    assert done.message.startswith("storage.pem_dir (or PEMS_DIR in the environment) does not")
