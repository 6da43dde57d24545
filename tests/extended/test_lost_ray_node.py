"""One node of a Ray cluster of two is lost with all its processes in the middle of a job."""

from __future__ import annotations

import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import grpc
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from cryptography import x509
from deltalake import DeltaTable

from tests.support.commands.driver import DriverRun, driver_command, write_job
from tests.support.commands.open_ports import SERVICE, call, tcp_ports
from tests.support.faults.faulty_run import await_that
from tests.support.ray.head import RayHead, a_head
from tests.support.ray.run import EMPTY_MIB, TITLES, all_gone
from tests.support.suite.slack import slack
from tests.support.suite.waiting import hang_s

FILES, ROWS = 6, 5_000

FUNCTIONS = """
import os, time
import pyarrow.compute as pc

PLACES = {places!r}

def stopping(batch):
    '''Maps 2 and 3, one on each node, wait until they may go on.'''
    file = batch["file"][0].as_py()
    if file in (2, 3):
        open(f"{{PLACES}}/at-{{file}}-{{os.getpid()}}", "w").close()
        while not os.path.exists(f"{{PLACES}}/go"):
            time.sleep(0.01)
    return batch
"""

JOB = """
[job]
name = "nodes"
[inputs.rows]
path = "in/*.parquet"
map = "functions:stopping"
key = ["k"]
[shuffle]
partitions = 8
memory = "256 MiB"
replicas = {replicas}
[reduce]
group_by = ["k"]
aggregate = {{ v = "sum(v)", rows = "count(*)" }}
[output]
table = "out"
[cluster]
executor = "ray"
ray_address = "{address}"
workers = 2
data_servers = 2
memory = "1 GiB"
heartbeat_timeout = "3 s"
"""


@contextmanager
def another_node(head: RayHead) -> Iterator[psutil.Process]:
    """A node with one core beside the head's; killed at the end with all that it started."""
    command = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block"),
        *("--address", head.address, "--num-cpus", "1", "--object-store-memory", str(80 << 20)),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as node:
        try:
            assert node.stdout is not None
            for line in node.stdout:
                if b"Ray runtime started" in line:
                    break
            yield psutil.Process(node.pid)
        finally:
            kill_all_of(psutil.Process(node.pid))


def kill_all_of(node: psutil.Process) -> None:
    """Kill all of its processes, as if the machine had lost power."""
    family = [node]
    with suppress(psutil.NoSuchProcess):
        family += node.children(recursive=True)
    for process in family:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(family[1:], 10)


def test_the_job_goes_on_without_the_node(needs_ray: None, tmp_path: Path) -> None:
    with a_head(cpus=1) as head, another_node(head) as node:
        done = run(tmp_path, head, node)
        all_gone(head)
    assert done.code == 0, done.stderr
    assert "was lost with its node" in done.stderr or "cannot be reached" in done.stderr
    assert done.result["attempts"]["map"] > FILES  # of which some fail, and others are stopped
    found = DeltaTable(tmp_path / "out").to_pyarrow_table().sort_by("k")
    expected = rows_of_all().group_by("k").aggregate([("v", "sum"), ([], "count_all")])
    assert found.to_pydict() == expected.rename_columns(found.column_names).sort_by("k").to_pydict()


def run(folder: Path, head: RayHead, node: psutil.Process) -> DriverRun:
    """The job, whose second node is lost when both of its nodes make a map."""
    (folder / "in").mkdir()
    places = folder / "places"
    places.mkdir()
    for number in range(FILES):
        pq.write_table(table_of(number), folder / "in" / f"{number}.parquet")
    (folder / "functions.py").write_text(FUNCTIONS.format(places=str(places)))
    job = write_job(folder, JOB.format(address=head.address, replicas=1))
    driver = subprocess.Popen(driver_command(job), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        await_both_maps(driver, places)
        here = {int(path.name.rpartition("-")[2]) for path in places.glob("at-*")}
        there = {process.pid for process in node.children(recursive=True)}
        assert len(here & there) == 1
        check_spread(head, node)
        check_certificates(head, node)
        kill_all_of(node)
        (places / "go").touch()
        stdout, stderr = driver.communicate(timeout=hang_s())
    finally:
        driver.kill()
        driver.wait()
    return DriverRun(driver.returncode, stdout.decode(), stderr.decode())


def await_both_maps(driver: subprocess.Popen[bytes], places: Path) -> None:
    """Wait until maps 2 and 3 are at their place, which Ray can take most of a minute to start."""

    def are_there() -> bool:
        assert driver.poll() is None, "the driver ended before"
        return {path.name.split("-")[1] for path in places.glob("at-*")} == {"2", "3"}

    try:
        await_that(are_there, "maps 2 and 3")
    except AssertionError as error:
        driver.kill()
        error.add_note(str(driver.communicate()))
        raise


def check_certificates(head: RayHead, node: psutil.Process) -> None:
    """Assert that the servers of the job show certificates, and want one of their callers."""
    names = []
    for place in (head, replace(head, process=node)):
        for address, port in sorted(tcp_ports(place.workers("ray::Mrflight"))):
            try:
                shown = ssl.get_server_certificate((address, port), timeout=5 * slack())
            except OSError:
                continue  # a port of Ray's own
            assert call(f"{address}:{port}", f"/{SERVICE}/ListActions", "unary_stream") is (
                grpc.StatusCode.UNAVAILABLE
            )
            names.append(names_in(shown.encode()))
    server = "mrflight-server"
    assert sorted(names) == [["data0", server], ["data1", server], ["metadata", server]]


def names_in(certificate: bytes) -> list[str]:
    found = x509.load_pem_x509_certificate(certificate).extensions
    names = found.get_extension_for_class(x509.SubjectAlternativeName).value
    return names.get_values_for_type(x509.DNSName)


def check_spread(head: RayHead, node: psutil.Process) -> None:
    """Assert that each node has one of the data servers, and that Ray counts what they may hold."""
    head.has_taken(memory=(256 + 3 * EMPTY_MIB) << 20, CPU=2)
    nodes = [head, replace(head, process=node)]
    assert [len(each.workers(TITLES["data"])) for each in nodes] == [1, 1]
    assert [len(each.workers(TITLES["metadata"])) for each in nodes] == [1, 0]


def table_of(number: int) -> pa.Table:
    rows = range(number * ROWS, (number + 1) * ROWS)
    return pa.table({"file": [number] * ROWS, "k": [row % 997 for row in rows], "v": list(rows)})


def rows_of_all() -> pa.Table:
    return pa.concat_tables(map(table_of, range(FILES)))
