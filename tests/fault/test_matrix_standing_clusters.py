"""The fault matrix: a standing cluster, whose servers nobody restarts."""

from __future__ import annotations

import re
from pathlib import Path

import psutil
import pytest

from mrflight.result import Attempts
from tests.support.clusters.cluster import StandingCluster, await_no_shuffles, standing_cluster
from tests.support.faults import faulty_run as faults
from tests.support.faults.deeds import fill_disk, room_again
from tests.support.faults.matrix import (
    Cell,
    at_the_moment,
    check,
    check_failed,
    check_rerun,
    check_table_untouched,
    hit,
)
from tests.support.faults.stopped_driver import Plan

pytestmark = [pytest.mark.runs_on_ray, pytest.mark.slow]

IMPATIENT = ("cluster.reconnect_timeout=2 s",)
HASTY = (*IMPATIENT, "cluster.call_timeout=4 s")
LEASE_S = 3.0

NO_SERVER = (
    r"no data server is left for 8 lost partitions of shuffle '.*'; "
    "start one with 'mrflight serve data --metadata LOCATION'"
)
SILENT = r"grpc\+tcp://127.0.0.1:\d+ did not answer in time"
NO_RECORD = r"the journal \S+/journal cannot be written: .*; it needs room"
NO_METADATA = r"grpc\+tcp://127.0.0.1:\d+ cannot be reached"

IN_THE_MAP = Attempts(5, 0, 0)
IN_THE_REDUCE = Attempts(5, 8, 0)
FAILS = [
    Cell("all data servers", "kill", "map", IN_THE_MAP, NO_SERVER, IMPATIENT),
    Cell("all data servers", "kill", "reduce", IN_THE_REDUCE, NO_SERVER, IMPATIENT),
    Cell("all data servers", "kill", "reduce", IN_THE_REDUCE, NO_SERVER),
    Cell("metadata server", "kill", "reduce", IN_THE_REDUCE, NO_METADATA, IMPATIENT),
    Cell("metadata server", "stop", "map", IN_THE_MAP, SILENT, HASTY),
]
GOES_ON = [
    Cell("one data server", "kill", "shuffle", {"map again": 3, "map moved": 2}),
    Cell("all data servers", "kill", "commit"),
    Cell("metadata server", "kill", "commit", {}, "", IMPATIENT),
]


@pytest.mark.parametrize("cell", FAILS, ids=str)
def test_the_job_fails(cell: Cell, tmp_path: Path) -> None:
    """With one data server: of two the second might be missed sooner or later after the first."""
    with standing_cluster(data_servers=1) as cluster:
        with at_the_moment(tmp_path, cell.when, *cell.options, standing=cluster.metadata) as (
            run,
            _,
        ):
            send(cluster, cell)
            if cell.who != "metadata server":  # or a task might notice before the driver does
                run.go_on()
            done = run.finish()
        for server in (cluster.metadata_process, *cluster.data_processes):
            server.kill()  # a data server that waits for its metadata server takes half a minute
    check_failed(cell, done, tmp_path)


@pytest.mark.parametrize("cell", GOES_ON, ids=str)
def test_the_job_goes_on(cell: Cell, tmp_path: Path) -> None:
    with standing_cluster() as cluster:
        with at_the_moment(tmp_path, cell.when, *cell.options, standing=cluster.metadata) as (
            run,
            _,
        ):
            hit(run, cell.when, lambda: send(cluster, cell))
            done = run.finish()
        check(cell, done, tmp_path)


def test_one_data_server_after_the_other(tmp_path: Path) -> None:
    """Rows lost with the first server are sent to the second one, which is then lost, too."""
    with (
        standing_cluster() as cluster,
        at_the_moment(tmp_path, "reduce", *IMPATIENT, standing=cluster.metadata) as (run, _),
    ):
        send(cluster, Cell("all data servers", "kill", "reduce"))
        run.go_on()
        done = run.finish()
    assert done.code == 1
    assert "5 of 5 map tasks run again, as their output was lost with" in done.stderr
    assert re.search(NO_SERVER, done.message), done.stderr
    check_table_untouched(tmp_path)


def test_a_journal_that_has_room_again(tmp_path: Path) -> None:
    """The failed job leaves nothing behind, and the next one runs as if it had not been there."""
    costs = Attempts(5, 0, 1)
    failed = Cell("metadata server", "full disk", "map", costs, NO_RECORD)
    with standing_cluster(journal=tmp_path / "journal") as cluster:
        server = psutil.Process(cluster.metadata_process.pid)
        with at_the_moment(
            tmp_path, failed.when, standing=cluster.metadata, plan=Plan(lease_s=LEASE_S)
        ) as (
            run,
            _,
        ):
            fill_disk(server)
            run.go_on()
            done = run.finish()
        check_failed(failed, done, tmp_path)
        room_again(server)
        await_no_shuffles(cluster.metadata)
        check_rerun(tmp_path, Cell("nobody", "", failed.when), cluster.metadata)


def send(cluster: StandingCluster, cell: Cell) -> None:
    """Kill or stop servers of the cluster, and wait until they are."""
    servers = {
        "one data server": cluster.data_processes[:1],
        "all data servers": cluster.data_processes,
        "metadata server": [cluster.metadata_process],
    }[cell.who]
    for server in servers:
        (faults.kill if cell.fault == "kill" else faults.stop)(psutil.Process(server.pid))
