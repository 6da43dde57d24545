"""A worker is suspended where speculation cannot help: in the only task, or in a function check."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.support.commands.driver import drive, write_job
from tests.support.commands.leftovers import nothing_left_over

JOB = """
[job]
name = "still"
speculation = false  # a twin would be done before
[inputs.rows]
path = "in.csv"
map = "standing:still"
key = ["k"]
[shuffle]
partitions = 1
[reduce]
function = "standing:still_again"
[output]
table = "out"
[cluster]
workers = 2
heartbeat_timeout = "SILENCE s"
"""

STANDING = """
import os
import signal
import threading
from pathlib import Path


def stop_once(place):
    if place == "PLACE":
        try:
            os.mkdir(Path(__file__).parent / "stopped")
        except FileExistsError:
            return
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # and no later than here


def still(batch):
    stop_once("map")
    return batch


def still_again(table):
    stop_once("reduce")
    return table


stop_once("import")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "partitions", "attempts"),
    [
        # One task maps and reduces the only partition. What failed in the import was a look.
        ("import", 1, {"map": 1, "reduce": 0, "failed": 0}),
        ("map", 1, {"map": 2, "reduce": 0, "failed": 1}),
        ("reduce", 1, {"map": 2, "reduce": 0, "failed": 1}),
        ("reduce", 2, {"map": 1, "reduce": 3, "failed": 1}),
    ],
)
def test_it_is_ended_and_its_task_made_again(
    place: str, partitions: int, attempts: dict[str, int], tmp_path: Path
) -> None:
    (tmp_path / "in.csv").write_text("k\n" + "\n".join(f"k{i}" for i in range(1_000)))
    (tmp_path / "standing.py").write_text(STANDING.replace("PLACE", place))
    silence_s = 2 if partitions == 1 else 8  # with servers, which have to be in time themselves
    job = write_job(tmp_path, JOB.replace("SILENCE", str(silence_s)))
    with nothing_left_over(tmp_path / "tmp") as environment:
        done = drive(job, "--set", f"shuffle.partitions={partitions}", environment=environment)
    assert done.code == 0, done.stderr
    assert (tmp_path / "stopped").exists()
    said = re.search(r"it had been stopped, by SIGSTOP, for (\d+) s, and was killed", done.stderr)
    assert said is not None, done.stderr
    assert int(said[1]) >= silence_s
    assert done.result["attempts"] == attempts
    parts = DeltaTable(tmp_path / "out").file_uris()
    assert len(parts) == partitions
    keys = [key for part in parts for key in pq.read_table(part)["k"].to_pylist()]
    assert Counter(keys) == Counter(f"k{i}" for i in range(1_000))
