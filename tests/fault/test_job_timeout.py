"""The job's timeout also holds while it waits for servers that do not come back."""

from __future__ import annotations

import re
from pathlib import Path

import psutil
import pytest

from tests.support.clusters.cluster import standing_cluster
from tests.support.faults import faulty_run as faults
from tests.support.faults.matrix import at_the_moment, check_table_untouched
from tests.support.faults.stopped_driver import Plan

pytestmark = pytest.mark.runs_on_ray

PATIENT = ("cluster.reconnect_timeout=2 h", "cluster.call_timeout=2 h")
"""A job that waited for servers for so long would hang."""
LATE = "the job's timeout passed .*; raise job.timeout"


@pytest.mark.slow
@pytest.mark.also_on_ray("data servers-reduce-stop")
@pytest.mark.parametrize(
    ("who", "when", "fault"),
    [
        ("data servers", "map", "kill"),
        pytest.param("data servers", "reduce", "stop", marks=pytest.mark.slow),
        ("metadata server", "reduce", "stop"),
    ],
)
def test_no_wait_for_servers_outlasts_it(who: str, when: str, fault: str, tmp_path: Path) -> None:
    over = tmp_path / "over"
    plan = Plan(ends_once=str(over), ends_in_s=3.0)
    with standing_cluster() as cluster:
        options = (*PATIENT, "job.timeout=1 h")
        is_data = who == "data servers"
        servers = cluster.data_processes if is_data else [cluster.metadata_process]
        with at_the_moment(tmp_path, when, *options, standing=cluster.metadata, plan=plan) as (
            run,
            _,
        ):
            for server in servers:
                (faults.kill if fault == "kill" else faults.stop)(psutil.Process(server.pid))
            over.touch()
            run.go_on()
            done = run.finish()
        for server in (cluster.metadata_process, *cluster.data_processes):
            server.kill()
    assert done.code == 1, done.stderr
    assert re.search(LATE, done.message), done.stderr
    check_table_untouched(tmp_path)
