"""However the driver ends, its processes and files end with it, and the table stays as it was."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

import mrflight
from tests.support.clusters.cluster import standing_cluster
from tests.support.commands.driver import driver_command, write_job
from tests.support.commands.leftovers import nothing_left_over, tree
from tests.support.commands.mrflight import started
from tests.support.commands.running_command import running_command
from tests.support.faults.faulty_run import stop
from tests.support.faults.stopped_driver import MODULE, Plan
from tests.support.suite.waiting import await_that, communicate

pytestmark = pytest.mark.runs_on_ray

JOB = """
[job]
name = "waits"
[inputs.rows]
path = "in.csv"
map = "waiting:at_the_gate"
key = ["k"]
[shuffle]
partitions = 2
[output]
table = "out"
mode = "overwrite"
[cluster]
workers = 2
"""

WAITING = """
from pathlib import Path

def at_the_gate(batch):
    '''Say that the map runs, and wait for whoever opens the gate: nobody does.'''
    gate = Path(__file__).parent
    with open(gate / "running", "w"):
        pass
    with open(gate / "gate"):  # a FIFO without a writer: blocks
        return batch
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "in.csv").write_text("k\n1\n2\n")
    (tmp_path / "waiting.py").write_text(WAITING)
    os.mkfifo(tmp_path / "running")
    os.mkfifo(tmp_path / "gate")
    return write_job(tmp_path, JOB)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGINT, 130, id="SIGINT"),
        pytest.param(signal.SIGTERM, 130, id="SIGTERM", marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, -signal.SIGKILL, id="SIGKILL"),
    ],
)
def test_a_signal_in_the_middle_of_the_map(job: Path, number: signal.Signals, code: int) -> None:
    folder = job.parent
    with (
        nothing_left_over(folder / "tmp") as environment,
        running_command(driver_command(job), environment) as driver,
    ):
        (folder / "running").read_bytes()  # returns once the map has opened and closed it
        driver.send_signal(number)
        communicate(driver, "the driver")
        assert driver.returncode == code
    assert tree(folder / "out") == {}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc/net/tcp")
@pytest.mark.parametrize("when", ["at the start", "in the map"])
def test_a_signal_while_the_metadata_server_stands_still(job: Path, when: str) -> None:
    """A call to it is under way then, and nobody waits for the answer."""
    folder = job.parent
    with (
        standing_cluster(data_servers=1) as cluster,
        nothing_left_over(folder / "tmp") as environment,
    ):
        if when == "at the start":
            cluster.metadata_process.send_signal(signal.SIGSTOP)
        command = driver_command(job, "--set", f"cluster.metadata={cluster.metadata}")
        try:
            with running_command(command, environment) as driver:
                if when == "in the map":
                    (folder / "running").read_bytes()
                    cluster.metadata_process.send_signal(signal.SIGSTOP)
                at = int(cluster.metadata.rpartition(":")[2])
                await_that(lambda: ports_to(at, driver.pid) & unread_from(at), "a call under way")
                driver.send_signal(signal.SIGINT)
                communicate(driver, "the driver")
        finally:
            cluster.metadata_process.send_signal(signal.SIGCONT)
        assert driver.returncode == 130
    assert tree(folder / "out") == {}


SERVERS = 5


@pytest.mark.slow
def test_a_signal_while_all_data_servers_stand_still(job: Path) -> None:
    """The driver drops the shuffle on all of them at the same time, so five take as long as one."""
    patient = Plan(notify_s=3600.0)
    folder = job.parent
    with (
        standing_cluster(data_servers=SERVERS) as cluster,
        nothing_left_over(folder / "tmp") as environment,
    ):
        words = driver_command(
            job,
            *("--set", f"cluster.metadata={cluster.metadata}"),
            *("--set", f"shuffle.partitions={SERVERS}"),
            command=patient.words(),
        )
        with mrflight.connect(cluster.metadata) as client:
            ports = [int(each.location.rpartition(":")[2]) for each in client.status().servers]
        assert len(ports) == SERVERS
        try:
            with started(*words, environment=environment, module=MODULE) as driver:
                (folder / "running").read_bytes()
                for server in cluster.data_processes:
                    stop(psutil.Process(server.pid))
                driver.send_signal(signal.SIGINT)
                # Before the first of them has answered.
                await_that(lambda: all(map(unread_from, ports)), "calls to all", beside=driver)
                for server in cluster.data_processes:
                    server.send_signal(signal.SIGCONT)
                stderr = driver.communicate()[1]
        finally:
            for server in cluster.data_processes:
                server.send_signal(signal.SIGCONT)
        assert driver.returncode == 130
        assert " drops shuffle " not in stderr
    assert tree(folder / "out") == {}


def ports_to(at: int, pid: int) -> set[int]:
    """From which a process is connected to a port."""
    connections = psutil.Process(pid).net_connections("tcp")
    return {each.laddr.port for each in connections if each.raddr and each.raddr.port == at}


def unread_from(at: int) -> set[int]:
    """From which something came to a port that its process has not read."""
    tables = [Path("/proc/net", name).read_text() for name in ("tcp", "tcp6")]
    lines = [line.split() for table in tables for line in table.splitlines()[1:]]
    return {
        int(remote.rpartition(":")[2], 16)
        for _, local, remote, _, queues, *_ in lines
        if local.endswith(f":{at:04X}") and int(queues.partition(":")[2], 16) > 0
    }
