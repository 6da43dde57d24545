"""A worker, a driver or a maintain is killed while it rewrites rows of the table."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import deltalake
import psutil
import pyarrow as pa
import pytest

from tests.support.commands.driver import drive, write_job
from tests.support.commands.leftovers import tree
from tests.support.faults import faulty_functions
from tests.support.faults import faulty_run as faults
from tests.support.faults.faulty_run import FaultyRun, faulty_run
from tests.support.faults.gated_job import clean
from tests.support.queries.oracle import rows
from tests.support.suite.waiting import await_that
from tests.support.tables.merges import read, unnamed_parts

pytestmark = pytest.mark.runs_on_ray

JOB = """
[job]
name = "merge"
speculation = false
run_id = "one"
[inputs.rows]
path = "in.csv"
map = "functions:watched"
[shuffle]
partitions = 2
[output]
table = "t"
mode = "merge"
keys = ["k"]
[cluster]
workers = 1
heartbeat_timeout = "10 min"
"""

BEFORE = [(1, 10), (2, 20), (3, 30), (4, 40)]
"""In two files of the table."""
AFTER = [(1, 11), (2, 20), (3, 31), (4, 40), (5, 51)]
"""One row of each file stays, and one is replaced."""

KILLED_WITH_A_SCRATCH_TABLE = """
import os, signal, sys
import deltalake
create = deltalake.transaction.create_table_with_add_actions
def create_and_die(*args, **kwargs):
    create(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)
deltalake.transaction.create_table_with_add_actions = create_and_die
from mrflight.driver import leave, main
leave(main(sys.argv[1:]))
"""

MAINTAIN = """
import functions, sys
from mrflight.frontend.cli import main
functions.watch_rewrites()
sys.exit(main(["maintain", "t", "--no-vacuum"]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A job, and the table that it merges into."""
    (tmp_path / "in.csv").write_text("k,v\n1,11\n3,31\n5,51\n")
    (tmp_path / "places").mkdir()
    shutil.copy(faulty_functions.__file__, tmp_path / "functions.py")
    for some in (BEFORE[:2], BEFORE[2:]):
        keys, values = zip(*some, strict=True)
        deltalake.write_deltalake(tmp_path / "t", pa.table({"k": keys, "v": values}), mode="append")
    write_job(tmp_path, JOB)
    return tmp_path


def rows_of(folder: Path) -> list[tuple[object, ...]]:
    return sorted(rows(read(folder)))


def names(folder: Path) -> set[str]:
    """Return the names of the part files that no version of the table lists."""
    return {Path(path).name for path in unnamed_parts(folder)}


def versions(folder: Path) -> int:
    return len(list((folder / "t" / "_delta_log").glob("*.json")))


def half_way(run: FaultyRun) -> psutil.Process:
    """The worker that rewrites, once the first of two files is begun."""
    (worker,) = run.at("rewrite")
    rewritten = [name for name in names(run.folder) if re.match(r"part-\d{6,}-0-", name)]
    assert len(rewritten) == 1, names(run.folder)
    assert (rows_of(run.folder), versions(run.folder)) == (BEFORE, 2)
    return worker


def check_merged(folder: Path) -> None:
    assert (rows_of(folder), versions(folder)) == (AFTER, 3)
    assert names(folder) == set()
    assert clean(folder / "t") == set()


def test_a_worker_that_is_killed_in_a_merge(folder: Path) -> None:
    with faulty_run(folder / "job.toml", ("rewrite",)) as run:
        faults.kill(half_way(run))
        run.go_on()
        done = run.finish()
    assert done.code == 0, done.stderr
    says = r"rewrite of .* and 1 more: attempt 1 of 4 failed and is retried: a worker .* killed"
    assert re.search(says, done.stderr), done.stderr
    assert done.stderr.count("is retried") == 1
    assert done.result["attempts"] == {"map": 1, "reduce": 2, "failed": 0}  # of maps and reduces
    assert done.result["merged"] == {
        "rows_updated": 2,
        "rows_deleted": 0,
        "files_rewritten": 2,
        "files_removed": 0,
    }
    check_merged(folder)


def test_a_driver_that_is_killed_in_a_merge(folder: Path) -> None:
    before = tree(folder / "t")
    with faulty_run(folder / "job.toml", ("rewrite",)) as run:
        half_way(run)
        faults.kill(psutil.Process(run.driver.pid))
    assert (rows_of(folder), versions(folder)) == (BEFORE, 2)
    left = names(folder)
    assert clean(folder / "t") == left
    with faulty_run(folder / "job.toml", ()) as run:
        done = run.finish()
    assert done.code == 0, done.stderr
    assert clean(folder / "t", "--remove") == left
    assert before.items() <= tree(folder / "t").items()
    check_merged(folder)


@pytest.mark.slow
def test_a_driver_that_is_killed_with_a_scratch_table(folder: Path) -> None:
    """It asks deltalake in a table of its own which files a transaction would remove."""
    temporary = folder / "tmp"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    command = [sys.executable, "-c", KILLED_WITH_A_SCRATCH_TABLE, "job.toml"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert [path.name for path in temporary.glob("mrflight-log-*/*/_delta_log")] == ["_delta_log"]
    again = drive(folder / "job.toml", environment={"TMPDIR": str(temporary)})
    assert again.code == 0, again.stderr
    assert rows_of(folder) == AFTER
    assert tree(temporary) == {}


@pytest.mark.slow
def test_a_maintain_that_is_killed_as_it_compacts(folder: Path) -> None:
    (folder / "places" / "stop at rewrite").touch()
    command = [sys.executable, "-c", MAINTAIN]
    with subprocess.Popen(command, cwd=folder) as maintain:
        try:
            is_there = (folder / "places" / "rewrite").is_symlink
            await_that(is_there, "the compaction", beside=maintain)
        finally:
            maintain.kill()
    (left,) = names(folder)
    assert (rows_of(folder), versions(folder)) == (BEFORE, 2)
    (folder / "places" / "stop at rewrite").unlink()
    again = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert again.stdout.startswith("compact     2 files, ")
    assert (rows_of(folder), versions(folder)) == (BEFORE, 3)
    assert clean(folder / "t", "--remove") == {left}
    assert rows_of(folder) == BEFORE
    assert names(folder) == set()
