"""An interrupted commit that hangs in the store is left alone, because it may still land.

If an overwrite changes the partition columns, deltalake loads the table again in the call that
commits: that is where it hangs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from deltalake import DeltaTable

from tests.support.commands.driver import DriverRun, driver_command, write_job
from tests.support.commands.leftovers import nothing_left_over, tree
from tests.support.commands.mrflight import started
from tests.support.faults.gated_job import clean, unnamed_files
from tests.support.faults.hanging_store import HangingStore, hanging_store
from tests.support.faults.stopped_driver import MODULE, Deed, Plan
from tests.support.suite.waiting import await_that, communicate
from tests.support.tables.outputs import OLD, Output

pytestmark = pytest.mark.runs_on_ray

JOB = """
[job]
name = "stands"
[inputs.rows]
path = "in.csv"
key = ["n"]
[shuffle]
partitions = 4
[output]
table = "out/table"
mode = "overwrite"
partition_by = ["k"]
"""
ROWS = [(n, "ab"[n % 2]) for n in range(40)]

STANDING = """
import os, sys
import deltalake.transaction

real = deltalake.transaction.create_table_with_add_actions

def standing(*args, **options):
    os.mkfifo("out/table/_delta_log/_last_checkpoint")
    return real(*args, **options)

deltalake.transaction.create_table_with_add_actions = standing
"""
DRIVER = f"{STANDING}\nfrom mrflight.driver import leave, main\nleave(main())"
PROGRAM = f"""{STANDING}
import mrflight

try:
    mrflight.run("job.toml", dict(each[len("--set="):].split("=", 1) for each in sys.argv[3:]))
except KeyboardInterrupt:
    print("interrupted", flush=True)
sys.stdin.read()
"""


def table_and_job(folder: Path) -> tuple[Path, Path]:
    """Make a table, and a job that overwrites it with other partition columns."""
    Output(folder, "delta").run(OLD, job_id="old")
    (folder / "in.csv").write_text("n,k\n" + "".join(f"{n},{k}\n" for n, k in ROWS))
    return folder / "out" / "table", write_job(folder, JOB)


@dataclass
class Run:
    """A program that runs the job."""

    process: subprocess.Popen[str]
    store: HangingStore
    table: Path


@contextmanager
def in_the_commit(folder: Path, program: str, *options: str) -> Iterator[Run]:
    """The program, once its commit hangs."""
    table, _ = table_and_job(folder)
    with (
        nothing_left_over(folder / "tmp") as environment,
        hanging_store(table) as store,
        subprocess.Popen(
            driver_command(Path("job.toml"), *options, command=(sys.executable, "-c", program)),
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        try:
            store.await_reader(process.pid)
            yield Run(process, store, table)
        finally:
            process.kill()


@pytest.mark.slow
def test_an_interrupt_ends_the_driver_and_clean_takes_what_did_not_land(tmp_path: Path) -> None:
    with in_the_commit(tmp_path, DRIVER) as run:
        before = tree(run.table / "_delta_log")
        run.process.send_signal(signal.SIGINT)
        done = DriverRun(0, *communicate(run.process, "the driver"))
    assert run.process.returncode == 130
    assert "interrupted in the commit; look at the table" in done.message
    assert tree(run.table / "_delta_log").keys() == before.keys() - {"_last_checkpoint"}
    left = unnamed_files(run.table)
    assert len(left) == 8  # of four partitions, with two values each
    assert clean(run.table, "--remove") == left
    assert Output(tmp_path, "delta").read() == OLD


@pytest.mark.slow
def test_what_lands_after_the_interrupt_has_its_files(tmp_path: Path) -> None:
    with in_the_commit(tmp_path, PROGRAM) as run:
        run.process.send_signal(signal.SIGINT)
        assert run.process.stdout is not None
        assert run.process.stdout.readline() == "interrupted\n"
        assert unnamed_files(run.table) != set()
        run.store.resume()
        landed = run.table / "_delta_log" / f"{1:020}.json"
        await_that(landed.exists, "the commit")
        communicate(run.process, "the program")
    assert DeltaTable(run.table).version() == 1
    assert Output(tmp_path, "delta", ("k",)).read() == ROWS
    assert unnamed_files(run.table) == clean(run.table) == set()


def test_the_jobs_timeout_ends_the_wait_and_leaves_what_may_land(tmp_path: Path) -> None:
    """It passes while the job waits for what becomes of its commit."""
    table, job = table_and_job(tmp_path)
    over = tmp_path / "over"
    plan = Plan((Deed("deltalake commits", "SIGSTOP"),), later_once=str(over))
    words = driver_command(job, "--set=job.timeout=1 h", command=plan.words())
    with (
        nothing_left_over(tmp_path / "tmp") as environment,
        hanging_store(table) as store,
        started(*words, environment=environment, module=MODULE) as driver,
    ):
        process = psutil.Process(driver.pid)
        await_that(lambda: process.status() == psutil.STATUS_STOPPED, "the driver to stop itself")
        store.hang()
        process.resume()
        store.await_reader(driver.pid)
        over.touch()
        done = DriverRun(0, *driver.communicate())
    assert driver.returncode == 1
    assert "the store does not answer the commit, and the job's time has passed" in done.message
    left = unnamed_files(table)
    assert len(left) == 8  # of four partitions, with two values each
    assert clean(table, "--remove") == left
    assert Output(tmp_path, "delta").read() == OLD
