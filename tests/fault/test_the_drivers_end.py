"""However the driver ends, its processes and files end with it, and the table is left alone."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.driver import driver_command, write_job
from tests.support.leftovers import nothing_left_over, tree

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


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -signal.SIGKILL)],
    ids=["SIGINT", "SIGTERM", "SIGKILL"],
)
def test_a_signal_in_the_middle_of_the_map(job: Path, number: signal.Signals, code: int) -> None:
    folder = job.parent
    with nothing_left_over(folder / "tmp") as environment:
        driver = subprocess.Popen(
            driver_command(job),
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        (folder / "running").read_bytes()  # returns once the map has opened and closed it
        driver.send_signal(number)
        driver.communicate(timeout=5)
        assert driver.returncode == code
    assert tree(folder / "out") == {}
