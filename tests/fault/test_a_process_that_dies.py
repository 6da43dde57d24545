"""A worker or a server that is killed in the middle of a job: the job fails, and says what died."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.driver import drive, write_job
from tests.support.leftovers import nothing_left_over, tree

JOB = """
[job]
name = "dies"
[inputs.rows]
path = "in.csv"
map = "killing:MAP"
key = ["k"]
[shuffle]
partitions = 2
[output]
table = "out"
[cluster]
workers = 2
"""

KILLING = """
import os
import signal

import psutil


def itself(batch):
    os.kill(os.getpid(), signal.SIGKILL)


def server(batch, kind):
    mark = os.environ["MRFLIGHT_TEST_RUN"]
    for process in psutil.process_iter(["name", "environ"]):
        ours = (process.info["environ"] or {}).get("MRFLIGHT_TEST_RUN") == mark
        if ours and process.info["name"] == f"mrflight-{kind}"[:15]:  # as much as the system keeps
            process.kill()
            while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                pass
            return batch
    return batch  # it is dead already


def data_server(batch):
    return server(batch, "data0")


def metadata_server(batch):
    return server(batch, "metadata")
"""


@pytest.mark.parametrize(
    ("victim", "said"),
    [
        ("itself", "a worker process ended in the middle of a task"),
        ("data_server", "data0.sock cannot be reached"),
        ("metadata_server", "metadata.sock cannot be reached"),
    ],
)
def test_a_kill_in_the_middle_of_the_map(tmp_path: Path, victim: str, said: str) -> None:
    (tmp_path / "in.csv").write_text("k\n1\n2\n")
    (tmp_path / "killing.py").write_text(KILLING)
    job = write_job(tmp_path, JOB.replace("MAP", victim))
    with nothing_left_over(tmp_path / "tmp") as environment:
        done = drive(job, environment=environment)
    assert done.code == 1, done.stderr
    assert said in done.message
    assert "in map 0 (rows" in done.message
    assert done.result["state"] == "failed"
    assert tree(tmp_path / "out") == {}
