"""Drivers that commit to one Iceberg table at the same time, or are killed around their commit."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.commands.clean_command import run_clean, run_clean_in
from tests.support.commands.driver import drive, driver_command, write_job
from tests.support.commands.mrflight import started
from tests.support.streams import iceberg_stream
from tests.support.suite.waiting import hang_s
from tests.support.tables.lakes import Lake
from tests.support.tables.outputs import NEW, OLD, finish

pytestmark = pytest.mark.runs_on_ray

ROOT = Path(__file__).parents[2]
ROWS = 40

KILLED = """
import os, signal
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog

def killed(kind, name, after):
    done = getattr(kind, name)
    def call(*given, **named):
        if after:
            done(*given, **named)
        os.kill(os.getpid(), signal.SIGKILL)
    setattr(kind, name, staticmethod(call) if name == "_write_metadata" else call)

for kind, name in KINDS:
    killed(kind, name, AFTER)
from mrflight.driver import leave, main
leave(main())
"""
COMMITS = "[(RestCatalog, 'commit_table'), (SqlCatalog, 'commit_table')]"
POINTS = {
    "before": (COMMITS, False),
    "metadata written": ("[(MetastoreCatalog, '_write_metadata')]", True),
    "after": (COMMITS, True),
}
CASES = [
    *(("sqlite", point, exists) for point in POINTS for exists in (False, True)),
    ("postgres", "before", True),
    ("postgres", "after", False),
    ("rest", "before", False),
    ("rest", "after", True),
    ("s3", "metadata written", True),
]
"""All on the file; on the others what the catalog, or the store of the metadata, does."""


def rows_file(folder: Path, name: str, numbers: range) -> None:
    (folder / name).write_text("n,k\n" + "".join(f"{n},k{n % 3}\n" for n in numbers))


@pytest.mark.slow
@pytest.mark.parametrize(("lake", "point", "exists"), CASES, indirect=["lake"])
def test_a_killed_driver_and_its_rerun(
    lake: Lake, tmp_path: Path, point: str, exists: bool
) -> None:
    if exists:
        finish(lake.open(job_id="old"), OLD)
    rows_file(tmp_path, "rows.csv", range(100, 100 + ROWS))
    job = write_job(tmp_path, lake.job(mode="append"))
    kinds, after = POINTS[point]
    program = KILLED.replace("KINDS", kinds).replace("AFTER", str(after))
    killed = subprocess.run(
        driver_command(job, "--set=job.run_id=a", command=(sys.executable, "-c", program)),
        capture_output=True,
        text=True,
        timeout=hang_s(),
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    again = drive(job, "--set=job.run_id=a")
    assert again.code == 0, again.stderr
    assert again.result["rows_in"] == (0 if point == "after" else ROWS)
    old = OLD if exists else []
    expected = [*old, *((n, f"k{n % 3}") for n in range(100, 100 + ROWS))]
    assert lake.rows("n", "k") == sorted(expected, key=repr)
    left = set(lake.files()) - set(lake.named_files())
    assert len(left) == (0 if point == "after" else 2)
    assert drive(job, "--set=job.run_id=a").result["rows_in"] == 0
    assert_cleaned(lake, tmp_path, left)


def assert_cleaned(lake: Lake, folder: Path, left: set[str]) -> None:
    """``mrflight clean`` lists and removes what is left over, and nothing else."""
    if lake.storage:
        return  # secrets of a store are taken from the environment of the command
    catalog = lake.catalog.replace("sqlite:///", f"sqlite:///{folder}/")
    listed = run_clean_in(catalog, lake.table, "--older-than", "0 s")
    assert (listed.returncode, listed.files) == (0, left), listed.stderr
    removed = run_clean_in(catalog, lake.table, "--older-than", "0 s", "--remove")
    assert removed.returncode == 0, removed.stderr
    assert lake.files() == lake.named_files()


@pytest.mark.parametrize(
    ("lake", "run_id"),
    [
        ("sqlite", None),
        pytest.param("sqlite", "a", marks=pytest.mark.slow),
        ("postgres", None),
        ("rest", "a"),
    ],
    indirect=["lake"],
)
def test_drivers_at_the_same_time(lake: Lake, tmp_path: Path, run_id: str | None) -> None:
    with ExitStack() as stack:
        drivers = []
        for number in range(3):
            of_job = range(number * ROWS, (number + 1) * ROWS)
            rows_file(tmp_path, f"{number}.csv", of_job if run_id is None else range(ROWS))
            text = lake.job(f"{number}.csv", mode="append")
            job = write_job(tmp_path, text, f"job{number}.toml")
            options = [] if run_id is None else [f"--set=job.run_id={run_id}"]
            words = driver_command(job, *options, command=())
            drivers.append(stack.enter_context(started(*words, module="mrflight.driver")))
        ends = [driver.communicate() for driver in drivers]
    assert [driver.returncode for driver in drivers] == [0, 0, 0], ends
    versions = {json.loads(out.splitlines()[-1])["version"] for out, _ in ends}
    jobs = 3 if run_id is None else 1
    assert len(versions) == jobs
    assert [row[0] for row in lake.rows("n")] == sorted(
        range(jobs * ROWS), key=lambda n: repr((n,))
    )
    assert len(lake.load().snapshots()) == jobs
    assert lake.files() == lake.named_files()


@pytest.mark.parametrize("lake", ["sqlite", "postgres", "rest"], indirect=True)
def test_two_writers_of_a_stream(lake: Lake, tmp_path: Path) -> None:
    finish(lake.open(job_id="old"), [])
    end = 21
    given = [json.dumps(lake.section(mode="append")), str(tmp_path)]
    with ExitStack() as stack:
        writers = [
            stack.enter_context(
                started(*given, name, str(end), module=iceberg_stream.__name__, cwd=ROOT)
            )
            for name in ("one", "two")
        ]
        ends = [writer.communicate() for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0], ends
    assert sorted(row[0] for row in lake.rows("n")) == list(range(end))
    assert lake.open("append").recorded_offsets("numbers") == {iceberg_stream.PARTITION: end}
    assert lake.files() == lake.named_files()


def test_clean_refuses_what_it_does_not_know(sqlite_lake: Lake, tmp_path: Path) -> None:
    finish(sqlite_lake.open(), NEW)
    for catalog, name, message in (
        (f"sqlite:///{tmp_path}/other.db", sqlite_lake.table, "there is no file"),
        (f"sqlite:///{tmp_path}/catalog.db", "no.table", "there is no table"),
    ):
        done = run_clean(Path(name), "--catalog", catalog, "--older-than", "0 s", "--remove")
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert sqlite_lake.rows() == sorted(NEW, key=repr)
