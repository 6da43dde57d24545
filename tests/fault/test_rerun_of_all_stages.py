"""Losses that cannot be recovered alone: all stages run again, and the result is right."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.support.commands.driver import DriverRun, drive, write_job
from tests.support.commands.leftovers import nothing_left_over

pytestmark = pytest.mark.runs_on_ray

FILES = 8
ROWS = 3_000
FIRST = 10_000
"""The first number: all have five digits, so that all files have the same size."""
MAPS = 2
"""What one worker gets; each map reads four files."""

KILLING = """
import os
import random
from pathlib import Path

import psutil
import pyarrow as pa

FOLDER = Path(__file__).parent
TITLES = ("mrflight-data1", "ray::MrflightData")  # here, and on Ray


def once(name):
    try:
        os.mkdir(FOLDER / name)
        return True
    except FileExistsError:
        return False


def kill_data_server():
    '''Kill a data server of this job.'''
    for process in psutil.Process().parent().children():
        title = " ".join((process.name(), *process.cmdline()[:1]))
        if any(each in title for each in TITLES):
            process.kill()
            while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                pass
            return
    raise LookupError(TITLES)


def anywhere(batch):
    '''Send rows to random partitions, which are others in each attempt.'''
    keys = pa.array([random.getrandbits(40) for _ in range(batch.num_rows)])
    return batch.append_column("chance", keys)


def dealt(batch):
    '''Send random rows to each partition, as many as in any other attempt.'''
    keys = [number % 12 for number in range(batch.num_rows)]
    random.shuffle(keys)
    return batch.append_column("chance", pa.array(keys))


def place(batch, key, partitions):
    return batch[key[0]].cast(pa.int32())


def place_in_turn(batch, key, partitions):
    return pa.array([number % partitions for number in range(batch.num_rows)], pa.int32())


def in_any_order(batch):
    rows = list(range(batch.num_rows))
    random.shuffle(rows)
    return batch.take(pa.array(rows))


def reduce(table):
    if len(list(FOLDER.glob("reduced-*"))) >= 3 and once("killed"):
        kill_data_server()
    (FOLDER / f"reduced-{os.getpid()}-{random.getrandbits(40)}").mkdir()
    return table
"""

CHANCE = """
[job]
name = "chance"
[inputs.rows]
path = "in-*.csv"
map = "killing:MAP"
key = ["KEY"]
[shuffle]
partitions = 12
partitioner = "PARTITIONER"
[reduce]
function = "killing:reduce"
[output]
table = "out"
[cluster]
workers = 1  # or another one might be done with all partitions while the server is killed
data_servers = 3
heartbeat_timeout = "10 min"
"""


def run(folder: Path, job: str) -> DriverRun:
    (folder / "killing.py").write_text(KILLING)
    with nothing_left_over(folder / "tmp") as environment:
        done = drive(write_job(folder, job), environment=environment)
    assert done.code == 0, done.stderr
    return done


def read(folder: Path) -> pa.Table:
    table = DeltaTable(folder / "out")
    assert table.version() == 0
    named = {Path(path).name for path in table.file_uris()}
    assert {path.name for path in (folder / "out").glob("*.parquet")} == named
    return pa.concat_tables(pq.read_table(path) for path in table.file_uris())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "key", "partitioner"),
    [
        ("anywhere", "chance", "hash"),
        ("dealt", "chance", "killing:place"),
        ("in_any_order", "n", "killing:place_in_turn"),
    ],
)
def test_maps_that_are_not_deterministic(
    function: str, key: str, partitioner: str, tmp_path: Path
) -> None:
    """The remaining output of the first run does not match what the maps send again."""
    job = CHANCE.replace("MAP", function).replace("KEY", key).replace("PARTITIONER", partitioner)
    numbers = range(FIRST, FIRST + FILES * ROWS)
    for number in range(FILES):
        lines = "\n".join(map(str, numbers[number * ROWS : (number + 1) * ROWS]))
        (tmp_path / f"in-{number}.csv").write_text(f"n\n{lines}\n")
    done = run(tmp_path, job)
    assert (tmp_path / "killed").exists()
    assert "all maps and reduces run again" in done.stderr, done.stderr
    assert "sent other rows than before" in done.stderr
    assert Counter(read(tmp_path)["n"].to_pylist()) == Counter(numbers)
    assert done.result["rows_in"] == done.result["rows_out"] == FILES * ROWS
    # Twice for the two runs, and some when the first one tries to replace what was lost.
    assert 2 * MAPS < done.result["attempts"]["map"] <= 4 * MAPS
    assert done.result["bytes_shuffled"] < 2 * FILES * ROWS * 17 + 500_000
