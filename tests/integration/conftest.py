"""Fixtures that several files of integration tests use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import mrflight
from mrflight.system.deadlines import Timeouts
from tests.support.clusters.cluster import StandingCluster, standing_cluster
from tests.support.commands.driver import write_job
from tests.support.jobs.clicks_job import JOB, WEIGH
from tests.support.suite.waiting import await_that, hang_s


@pytest.fixture
def clicks(tmp_path: Path) -> Path:
    """The clicks job, without its input."""
    (tmp_path / "clicks.py").write_text(WEIGH)
    return write_job(tmp_path, JOB)


@pytest.fixture(scope="module")
def running() -> Iterator[StandingCluster]:
    """Three data servers that the tests of a file share."""
    with standing_cluster(data_servers=3) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: StandingCluster) -> Iterator[mrflight.Cluster]:
    """A client of the cluster, which must hold nothing before and after each test."""
    with mrflight.connect(running.metadata) as client:
        await_that(lambda: holds_nothing(client), "the cluster to hold nothing before the test")
        yield client
        await_that(lambda: holds_nothing(client), "the cluster to hold nothing after the test")


@pytest.fixture
def patient_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of this process wait for a standing cluster that is slow to drop their shuffles."""
    patient = Timeouts(call_s=hang_s(), reconnect_s=0.0)
    monkeypatch.setattr("mrflight.scheduler.shuffles.NO_RETRY", patient)


def holds_nothing(client: mrflight.Cluster) -> bool:
    """Return whether three servers are there without a shuffle."""
    status = client.status()
    return not status.shuffles and [each.partitions for each in status.servers] == [0, 0, 0]
