"""The settings for Ray are checked before anything is started."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

import mrflight
from mrflight.config.job_file import decode_job
from mrflight.config.memory import MIB
from mrflight.config.settings import Machines, RunSettings
from mrflight.config.spec import JobSpec
from mrflight.errors import JobFailedError, JobFileError
from tests.support.commands.driver import write_job
from tests.support.suite.messages import refused

JOB = """
[job]
name = "j"
[inputs.rows]
path = "in/*.csv"
key = ["k"]
[output]
table = "out"
[cluster]
executor = "ray"
"""


def spec(**cluster: object) -> JobSpec:
    return decode_job(
        {
            "job": {"name": "j"},
            "inputs": {"rows": {"path": "in/*.csv", "key": ["k"]}},
            "output": {"table": "out"},
            "cluster": cluster,
        }
    )


def test_an_address_needs_ray_and_must_be_that_of_a_node(tmp_path: Path) -> None:
    with refused(JobFileError, "cluster.ray_address"):
        RunSettings.of(spec(ray_address="auto"), tmp_path)
    for wrong in ("ray://head:10001", " "):
        with refused(JobFileError, "cluster.ray_address"):
            RunSettings.of(spec(executor="ray", ray_address=wrong), tmp_path)


def test_defaults_come_from_the_nodes_of_ray(tmp_path: Path) -> None:
    machines = Machines(cpus=24, memory_bytes=100 << 30)
    settings = RunSettings.of(spec(executor="ray"), tmp_path, machines)
    assert (settings.workers, settings.data_servers) == (24, 6)
    assert settings.memory.total == 50 << 30
    limited = spec(executor="ray", workers=3, memory="2 GiB")
    settings = RunSettings.of(limited, tmp_path, machines)
    assert (settings.workers, settings.memory.total) == (3, 2048 * MIB)


@pytest.mark.usefixtures("needs_ray")
def test_an_address_that_does_not_answer_is_reported_at_once(tmp_path: Path) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # without listening
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        message = rf"^cluster\.ray_address: nothing answers at {address}: .*; start that Ray"
        with pytest.raises(JobFailedError, match=message):
            mrflight.run(write_job(tmp_path, JOB), overrides={"cluster.ray_address": address})


def test_the_memory_of_ray_is_taken_from_that_of_the_job(tmp_path: Path) -> None:
    """The gateway, and Ray in two workers and a data server, take 110 + 3 * 50 MiB."""
    local = RunSettings.of(spec(workers=2, memory="1 GiB"), tmp_path).memory
    on_ray = RunSettings.of(spec(executor="ray", workers=2, memory="1 GiB"), tmp_path).memory
    assert local.servers - on_ray.servers == 130 * MIB
    assert local.reducer - on_ray.reducer == 130 * MIB // 4
    with refused(JobFileError, "cluster.memory"):
        RunSettings.of(spec(executor="ray", workers=2, memory="600 MiB"), tmp_path)
