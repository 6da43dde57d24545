"""Drivers and catalogs that end around a commit to a DuckLake; a rerun leaves one commit."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from mrflight.errors import CommitError, OutputError
from mrflight.storage.ducklake.interpreter import VARIABLE
from mrflight.storage.ducklake.process import LakeProcessLostError
from mrflight.storage.ducklake.process_pool import borrowed_process, end_idle_processes
from tests.services.postgres import running_postgres
from tests.support.commands.clean_command import run_clean_in
from tests.support.commands.driver import drive
from tests.support.commands.mrflight import started
from tests.support.commands.running_command import running_command
from tests.support.suite.messages import refused
from tests.support.suite.waiting import hang_s
from tests.support.tables import faulty_catalog
from tests.support.tables.ducklakes import DuckLake
from tests.support.tables.faulty_catalog import FAULTS

RUN_ID = 'run_id = "2026-11-20"'

JOB = """
[job]
name = "orders"
RUN
[inputs.rows]
path = "in.csv"
key = ["n"]
[shuffle]
partitions = 3
[output]
table = "sales.orders"
format = "ducklake"
catalog = "CATALOG"
data_path = "data"
mode = "append"
[cluster]
workers = 1
"""


def orders_job(lake: DuckLake, name: str = "job", run: str = RUN_ID) -> Path:
    """A job that appends the numbers from 0 to 29."""
    folder = lake.base
    (folder / "in.csv").write_text("n\n" + "".join(f"{n}\n" for n in range(30)))
    text = JOB.replace("RUN", run).replace("CATALOG", lake.catalog)
    job = folder / f"{name}.toml"
    job.write_text(text)
    return job


def faulty(lake: DuckLake, fault: str) -> Mapping[str, str]:
    """Return the environment of a driver whose catalog fails once."""
    program = lake.base / "faulty-python"
    program.write_text(f'#!/bin/sh\nexec "{lake.python}" "{faulty_catalog.__file__}" "$@"\n')
    program.chmod(0o755)
    return {VARIABLE: str(program), "MRFLIGHT_TEST_FAULT": f"{fault}:{lake.base / 'struck'}"}


def files(lake: DuckLake) -> set[str]:
    return {path.name for path in lake.parts()}


def named(lake: DuckLake) -> set[str]:
    query = "SELECT path FROM __ducklake_metadata_lake.ducklake_data_file"
    return {path for (path,) in lake.query(query) if path.startswith("part-")}


CASES = [
    *(("duckdb", fault) for fault in FAULTS),
    ("sqlite", "after_commit"),
    ("postgres", "before_commit"),
    ("postgres", "no_answer"),
]
"""All in a catalog of DuckDB; in the others what the catalog does with a commit. A soak has all."""
SOAKED = [
    pytest.param(catalog, fault, marks=pytest.mark.soak)
    for catalog in ("sqlite", "postgres")
    for fault in FAULTS
    if (catalog, fault) not in CASES
]


@pytest.mark.slow
@pytest.mark.parametrize(("ducklake", "fault"), [*CASES, *SOAKED], indirect=["ducklake"])
def test_a_commit_counts_once_whatever_ends(ducklake: DuckLake, fault: str) -> None:
    job = orders_job(ducklake)
    struck = drive(job, environment=faulty(ducklake, fault))
    assert (ducklake.base / "struck").exists()
    survives = fault in ("no_commit", "no_answer")
    assert struck.code == (0 if survives else -signal.SIGKILL), struck.stderr
    again = drive(job)
    assert again.code == 0, again.stderr
    assert ducklake.read("n") == [(n,) for n in range(30)]
    _check_only_orphans_are_left(ducklake)


def _check_only_orphans_are_left(lake: DuckLake) -> None:
    orphans = files(lake) - named(lake)
    options = ["--older-than", "0 s", "--remove"]
    listed = run_clean_in(_absolute(lake), lake.table, *options, prefix="ducklake:")
    assert listed.returncode == 0, listed.stderr
    assert listed.files == orphans
    assert files(lake) == named(lake)
    assert lake.read("n") == [(n,) for n in range(30)]


def _absolute(lake: DuckLake) -> str:
    scheme, _, rest = lake.catalog.partition(":///")
    return f"{scheme}:///{lake.base / rest}" if rest else lake.catalog


@pytest.mark.slow
@pytest.mark.parametrize("ducklake", ["duckdb", "sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize("run", ["", RUN_ID], ids=["two_jobs", "one_run"])
def test_two_jobs_that_commit_at_the_same_time(ducklake: DuckLake, run: str) -> None:
    jobs = [orders_job(ducklake, name, run) for name in ("one", "two")]
    with (
        started(jobs[0], module="mrflight.driver") as first,
        started(jobs[1], module="mrflight.driver") as second,
    ):
        ends = [process.communicate() for process in (first, second)]
        assert [first.returncode, second.returncode] == [0, 0], ends
    times = 1 if run else 2
    assert ducklake.read("n") == [(n,) for n in range(30) for _ in range(times)]
    assert files(ducklake) == named(ducklake)


def test_a_catalog_that_does_not_answer_is_ended(needs_ducklake: Path) -> None:
    python = str(needs_ducklake)
    with borrowed_process(python) as process:
        assert process.run("SELECT 42") == [[42]]
        endless = "SELECT count(*) FROM range(1000000) a, range(1000000) b, range(1000000) c"
        with refused(LakeProcessLostError):
            process.run(endless, timeout_s=0.5)
        assert not process.is_alive
        with pytest.raises(LakeProcessLostError):
            process.run("SELECT 43")
    with borrowed_process(python) as process:
        assert process.run("SELECT 44") == [[44]]
    end_idle_processes()


def test_the_catalog_ends_with_its_parent(needs_ducklake: Path) -> None:
    program = (
        "import sys; from mrflight.storage.ducklake.process import LakeProcess; "
        "process = LakeProcess(sys.argv[1]); process.run('SELECT 1'); "
        "print(process.pid, flush=True); sys.stdin.read()"
    )
    with running_command([sys.executable, "-c", program, str(needs_ducklake)]) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        descriptor = os.pidfd_open(child)
        parent.kill()
    try:
        assert select.select([descriptor], [], [], hang_s())[0], "it lives"
    finally:
        os.close(descriptor)


def test_a_catalog_that_is_away_is_an_outage(
    needs_postgres: None, ducklake_python: Path, tmp_path: Path
) -> None:
    with running_postgres() as postgres, postgres.database() as name:
        lake = DuckLake(ducklake_python, tmp_path, postgres.uri(name), "data")
        lake.run()
        postgres.kill()
        with pytest.raises(CommitError, match=r"output\.catalog: .* cannot be used") as caught:
            lake.open()
        assert caught.value.retryable
        postgres.server.start_again()
        postgres.await_ready()
        assert lake.open().recorded_offsets("numbers") == {}
        wrong = replace(lake, catalog=lake.catalog.replace(name, "nowhere"))
        with pytest.raises(OutputError, match="nowhere"):
            wrong.open()
