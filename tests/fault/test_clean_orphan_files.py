"""``mrflight clean`` removes what a killed driver left, and nothing that a log names."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from mrflight.config.formats import OutputFormat
from tests.support.commands.clean_command import run_clean
from tests.support.commands.driver import drive, driver_command, write_job
from tests.support.commands.leftovers import nothing_left_over, tree
from tests.support.commands.running_command import running_command
from tests.support.suite.waiting import await_that, communicate, hang_s
from tests.support.tables.manifests import newest_manifest
from tests.support.tables.outputs import Output

pytestmark = pytest.mark.runs_on_ray

JOB = """
[job]
name = "clean"
speculation = false  # a second attempt of a slow task would leave another file
[inputs.rows]
path = "in.csv"
key = ["k"]
[shuffle]
partitions = 8
[reduce]
function = "waiting:reduce"
[output]
table = "out"
mode = "append"
FORMAT
[cluster]
workers = 2
"""

WAITING = """
import os
from pathlib import Path

def reduce(table):
    '''In a run that has a gate, all partitions but that of key 1 wait for nobody.'''
    gate = Path(__file__).parent / "gate"
    if gate.exists() and 1 in table["k"].to_pylist():
        gate.open().read()  # a FIFO without a writer: blocks
    return table
"""


def clean(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mrflight.frontend.cli", "clean", "out", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=hang_s(),
    )


@pytest.fixture(params=["delta", "parquet"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A job's folder, whose first run was committed and whose second one's driver was killed."""
    (tmp_path / "in.csv").write_text("k\n" + "\n".join(map(str, range(100))) + "\n")
    (tmp_path / "waiting.py").write_text(WAITING)
    job = write_job(tmp_path, JOB.replace("FORMAT", f'format = "{request.param}"'))
    assert drive(job).code == 0
    committed = parts(tmp_path)
    os.mkfifo(tmp_path / "gate")
    with (
        nothing_left_over(tmp_path / "tmp") as environment,
        running_command(driver_command(job), environment) as driver,
    ):
        # All but that of key 1.
        await_that(lambda: len(parts(tmp_path) - committed) == 7, "the files", beside=driver)
        driver.send_signal(signal.SIGKILL)
        communicate(driver, "the driver")
    return tmp_path


def parts(folder: Path) -> set[str]:
    return {path.name for path in (folder / "out").glob("part-*") if path.stat().st_size}


def rows(folder: Path) -> pa.Table:
    table = DeltaTable(folder / "out").to_pyarrow_table()
    return table.sort_by("k")


@pytest.mark.slow
def test_what_is_left_over_is_listed_then_removed(folder: Path) -> None:
    before = tree(folder / "out")
    (job,) = {re.split(r"-\d+-", name, maxsplit=1)[1][:28] for name in parts(folder)} - {
        re.split(r"-\d+-", name, maxsplit=1)[1][:28] for name in committed(folder)
    }
    young = clean(folder, "--remove")
    assert (young.returncode, young.stdout) == (0, "")  # the job may be running still
    assert re.match(r"\d+ newer files? may belong to a running job", young.stderr)
    listed = clean(folder, "--older-than", "0 s")
    assert listed.returncode == 0, listed.stderr
    lines = listed.stdout.splitlines()
    assert len(lines) == 7
    assert all(job in line for line in lines)
    assert "left over; --remove removes them" in listed.stderr
    assert tree(folder / "out") == before
    removed = clean(folder, "--older-than", "0 s", "--remove")
    assert removed.stdout == listed.stdout
    gone = {line.split("  ")[0] for line in lines}
    assert tree(folder / "out") == {path: what for path, what in before.items() if path not in gone}
    assert parts(folder) == committed(folder)
    nothing = clean(folder, "--older-than", "0 s")
    assert (nothing.stdout, nothing.stderr) == ("", "0 files, 0 B, left over\n")


def committed(folder: Path) -> set[str]:
    """The part files of the run that was committed."""
    if (folder / "out" / "_delta_log").exists():
        return {Path(uri).name for uri in DeltaTable(folder / "out").file_uris()}
    return set(re.findall(r"part-[^\"]+", newest_manifest(folder / "out").read_text()))


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["delta"], indirect=True)
def test_files_that_were_overwritten_stay_for_time_travel(folder: Path) -> None:
    (folder / "gate").unlink()
    job = folder / "job.toml"
    assert drive(job, "--set", "output.mode=overwrite").code == 0
    table = DeltaTable(folder / "out")
    table.create_checkpoint()
    for entry in (folder / "out" / "_delta_log").glob("*.json"):
        entry.unlink()  # the log is in the checkpoint alone
    old = committed(folder)
    assert clean(folder, "--older-than", "0 s", "--remove").returncode == 0
    assert old <= parts(folder)
    assert len(parts(folder)) == 2 * len(old)  # what was overwritten is there as well
    assert rows(folder)["k"].to_pylist() == list(range(100))


@pytest.mark.slow
def test_a_log_that_cannot_be_read_removes_nothing(folder: Path) -> None:
    log = folder / "out" / "_delta_log"
    broken = log / f"{9:020d}.json" if log.exists() else newest_manifest(folder / "out")
    broken.write_text('{"add": ')
    before = tree(folder / "out")
    done = clean(folder, "--older-than", "0 s", "--remove")
    assert done.returncode == 2
    assert "cannot be read" in done.stderr
    assert tree(folder / "out") == before


def test_a_delta_log_without_entries_removes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "_delta_log").mkdir(parents=True)
    (out / "_delta_log" / "_last_checkpoint").write_text('{"version": 10, "size": 1}')
    (out / "part-00000-0-20200101T000000-abcdefabcdef.parquet").write_bytes(b"mine")
    before = tree(out)
    done = clean(tmp_path, "--older-than", "0 s", "--remove")
    assert done.returncode == 2
    assert tree(out) == before


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_tables_below_and_behind_links_stay(tmp_path: Path, format: OutputFormat) -> None:
    """Their files have names that the log of the table above does not have."""
    outer = Output(tmp_path, format)
    outer.run(job_id="20200101T000000-aaaaaaaaaaaa")
    orphan = outer.folder / "part-00000-0-20200101T000000-cccccccccccc.parquet"
    others = [outer.folder / "archive", outer.folder / "k=1", tmp_path / "other"]
    for base in others:
        Output(base, format).run(job_id="20200101T000000-bbbbbbbbbbbb")
    (outer.folder / "k=2").symlink_to(others[-1] / "out/table")
    (outer.folder / "link").symlink_to(others[-1])
    before = tree(tmp_path)
    orphan.write_bytes(b"left over")
    done = run_clean(outer.folder, "--older-than", "0 s", "--remove")
    assert (done.returncode, done.files) == (0, {orphan.name})
    assert tree(tmp_path) == before


def test_a_time_that_is_none_is_told(tmp_path: Path) -> None:
    done = clean(tmp_path, "--older-than", "soon")
    assert done.returncode == 2
    assert "--older-than: 'soon' is not a time" in done.stderr
