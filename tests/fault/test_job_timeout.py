"""The job's timeout also holds while it waits for servers that do not come back."""

from __future__ import annotations

import re
import time
from pathlib import Path

import psutil
import pytest

from tests.support.clusters.cluster import standing_cluster
from tests.support.faults import faulty_run as faults
from tests.support.faults import place as fault_place
from tests.support.faults.matrix import at_the_moment, check_table_untouched

TIMEOUT_S = 6.0
END_S = 10.0
"""For the end of the job, on a machine that may have more to do. The servers would be awaited for
ten minutes."""

PATIENT = (
    "cluster.reconnect_timeout=10 min",
    "cluster.call_timeout=10 min",
)
LATE = "the job's timeout passed .*; raise job.timeout"


@pytest.mark.parametrize(
    ("who", "when", "fault"),
    [
        ("data servers", "map", "kill"),
        pytest.param("data servers", "reduce", "stop", marks=pytest.mark.slow),
        ("metadata server", "reduce", "stop"),
    ],
)
def test_no_wait_for_servers_outlasts_it(who: str, when: str, fault: str, tmp_path: Path) -> None:
    with standing_cluster() as cluster:
        began = time.monotonic()
        timeout_s = TIMEOUT_S + fault_place.PLACE.start_s
        options = (*PATIENT, f"job.timeout={timeout_s:g} s")
        is_data = who == "data servers"
        servers = cluster.data_processes if is_data else [cluster.metadata_process]
        with at_the_moment(tmp_path, when, *options, standing=cluster.metadata) as (run, _):
            for server in servers:
                (faults.kill if fault == "kill" else faults.stop)(psutil.Process(server.pid))
            run.go_on()
            done = run.finish()
            took_s = time.monotonic() - began
        for server in (cluster.metadata_process, *cluster.data_processes):
            server.kill()
    assert done.code == 1, done.stderr
    assert re.search(LATE, done.message), done.stderr
    check_table_untouched(tmp_path)
    assert timeout_s < took_s < timeout_s + END_S
