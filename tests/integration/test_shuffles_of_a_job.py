"""The shuffles that a job makes on a standing cluster: kept as long as it runs, and no longer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pytest

import mrflight
from mrflight.config.identity import ClientOptions
from mrflight.events.recorder import Recorder
from mrflight.scheduler.shuffle_monitor import LEASE_S
from mrflight.scheduler.shuffles import JobShuffles
from mrflight.shuffle.client.shuffle import Shuffle
from mrflight.shuffle.metadata.registry import Registry
from mrflight.shuffle.wire.protocol import ShuffleHealth
from mrflight.system.deadlines import NO_DEADLINE
from tests.support.clusters.cluster import StandingCluster, data_server, standing_cluster
from tests.support.clusters.near_cluster import near_metadata
from tests.support.clusters.registries import Clock
from tests.support.commands.driver import write_job
from tests.support.jobs import stages_job
from tests.support.jobs.plans import job
from tests.support.suite.waiting import await_that

pytestmark = pytest.mark.runs_on_ray

JOB = """
[job]
name = "leased"
[inputs.rows]
path = "in.csv"
key = ["k"]
[shuffle]
partitions = 3
[output]
table = "out"
[cluster]
metadata = "METADATA"
workers = 1
"""


class RenewedRegistry(Registry):
    """A registry that counts renewals of leases."""

    renewals = 0

    def health(self, shuffle_id: str, token: str = "") -> ShuffleHealth:
        found = super().health(shuffle_id, token)
        self.renewals += 1
        return found


@pytest.fixture
def cluster() -> Iterator[StandingCluster]:
    with standing_cluster(data_servers=1) as cluster:
        yield cluster


@pytest.mark.usefixtures("patient_drops")
def test_the_lease_is_renewed_before_the_maps_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that is loaded, or a sample that is taken, may take longer than it."""
    registry = RenewedRegistry(clock := Clock(), math.inf)
    create = JobShuffles.create

    def created(shuffles: JobShuffles, name: str, partitions: int) -> Shuffle:
        shuffle = create(shuffles, name, partitions)
        for _ in range(2):
            clock.now_s += LEASE_S * 2 / 3
            enough = registry.renewals + 2  # the first of them may have begun before
            await_that(lambda enough=enough: registry.renewals >= enough, "renewals of the lease")
        return shuffle

    monkeypatch.setattr(JobShuffles, "create", created)
    pyarrow.csv.write_csv(pa.table({"k": range(100)}), tmp_path / "in.csv")
    with near_metadata(registry) as metadata, data_server(metadata):
        assert mrflight.run(write_job(tmp_path, JOB.replace("METADATA", metadata))).rows_out == 100
        with mrflight.connect(metadata) as client:
            assert client.status().shuffles == []


@pytest.mark.usefixtures("patient_drops")
def test_a_job_that_begins_anew_frees_all_that_it_made(cluster: StandingCluster) -> None:
    spec = job(job={"name": f"of \x1b[2J{200 * 'x'}"})
    with mrflight.connect(cluster.metadata) as client:

        def held() -> list[str]:
            return [shuffle.id for shuffle in client.status().shuffles]

        with JobShuffles(
            cluster.metadata, spec, ClientOptions(), NO_DEADLINE, Recorder(), is_standing=True
        ) as shuffles:
            for name in ("maps", "maps-merged"):
                shuffles.create(name, 2)
            assert held() == ["maps", "maps-merged"]
            names = {shuffle.job for shuffle in client.status().shuffles}
            assert names == {f"of ?[2J{121 * 'x'}"}  # what a terminal can show
            shuffles.drop()
            assert held() == []
            shuffles.create("maps-1", 2)
            assert held() == ["maps-1"]
        assert held() == []


def test_a_large_output_of_a_stage_is_read_by_several_maps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its partitions is read once, by one of the maps of the next stage."""
    monkeypatch.setattr("mrflight.planner.stage_plan._MIN_SPLIT_BYTES", 1)
    rows = stages_job.write_rows(tmp_path / "in", seed=18)
    result = mrflight.run(write_job(tmp_path, stages_job.JOB.replace("REPLICAS", "1")))
    # One map for each file, and more than one for each of the two stages that read the first.
    assert result.attempts.map > stages_job.FILES + 2
    found = stages_job.result_of(tmp_path)
    assert found == stages_job.expected(rows).cast(found.schema)
