"""A data server's location instead of the metadata server's, and texts that are not locations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mrflight.shuffle.metadata.registry import Registry
from tests.support.clusters.near_cluster import NearDataServer, near_data_servers, near_metadata
from tests.support.clusters.registries import TIMEOUT_S, Clock
from tests.support.commands.driver import drive, write_job
from tests.support.commands.mrflight import mrflight as run
from tests.support.jobs.clicks_job import JOB, WEIGH

pytestmark = pytest.mark.runs_on_ray


@pytest.fixture
def near(tmp_path: Path) -> Iterator[NearDataServer]:
    with (
        near_metadata(Registry(Clock(), TIMEOUT_S)) as metadata,
        near_data_servers(metadata, 1, tmp_path) as (near,),
    ):
        yield near


def refusal(near: NearDataServer) -> str:
    """Return how a data server refuses an action of the metadata server."""
    return f"{near.location} is a data server, and"


def test_status_of_a_data_server(near: NearDataServer) -> None:
    done = run("status", near.location)
    assert done.returncode == 1
    assert done.stderr.startswith(f"mrflight: {refusal(near)} 'status' is an action ")
    assert done.stderr.endswith(f"is at {near.membership.metadata_location}\n")


def test_a_data_server_cannot_join_another(near: NearDataServer) -> None:
    done = run("--metadata", near.location, "--port", "0", module="mrflight.servers.data")
    assert done.returncode != 0
    assert f"mrflight: {refusal(near)} 'register_server'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_job_cannot_run_on_a_data_server(near: NearDataServer, tmp_path: Path) -> None:
    (tmp_path / "visits").mkdir()
    (tmp_path / "visits" / "a.csv").write_text("url,visitor,ms\nx.com,User,3\n")
    (tmp_path / "clicks.py").write_text(WEIGH)
    done = drive(write_job(tmp_path, JOB), "--set", f"cluster.metadata={near.location}")
    assert done.code == 1
    assert done.message.startswith(f"{refusal(near)} 'put_shuffle'")


@pytest.mark.parametrize("text", ["127.0.0.1:5005", "http://h:1", ""])
def test_status_of_something_that_is_not_a_location(text: str) -> None:
    done = run("status", text)
    assert done.returncode == 2
    assert done.stderr.startswith(f"mrflight: {text!r} is not a location such as grpc+tls://")
