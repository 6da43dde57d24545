"""Tests that a job writes only its result to stdout, and everything else to stderr."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.support.commands.driver import drive, driver_command, write_job
from tests.support.commands.terminal import ENVIRONMENT, terminal
from tests.support.jobs.clicks_job import WEIGH, write_visits

pytestmark = pytest.mark.runs_on_ray


def test_progress_is_plain_lines_in_a_pipe(clicks: Path, tmp_path: Path) -> None:
    write_visits(tmp_path / "visits", "csv")
    lines = drive(clicks).stderr.splitlines()
    assert "map: 1 of 4" in lines
    assert any(line.startswith("map: 20,000 rows read, ") for line in lines)
    assert "reduce: 998 rows written" in lines
    assert "commit: 7 files, version 0" in lines
    assert lines[-1] == f"{tmp_path}/out/clicks, version 0"


@pytest.mark.slow_but("-vv-debug-shown2")
@pytest.mark.parametrize(
    ("option", "level", "shown"),
    [
        ("-q", "error", []),
        ("--log-level=info", "info", ["the plan of job ", "INFO root: seen", "partitions: "]),
        ("-vv", "debug", ["INFO root: seen", "DEBUG mrflight.scheduler.task_set: map"]),
    ],
)
def test_how_much_a_job_says(
    clicks: Path, tmp_path: Path, option: str, level: str, shown: list[str]
) -> None:
    write_visits(tmp_path / "visits", "csv")
    log = "    import logging\n    logging.info('seen')\n    logging.debug('more')\n    return"
    (tmp_path / "clicks.py").write_text(WEIGH.replace("    return", log))
    done = drive(clicks, option)
    assert done.result["state"] == "committed"
    assert [text for text in shown if text not in done.stderr] == []
    assert ("DEBUG root: more" in done.stderr) == (level == "debug")
    assert (done.stderr == "") == (option == "-q")


def test_a_job_that_fails_says_so_quietly(clicks: Path) -> None:
    done = drive(clicks, "-q")  # there are no visits
    assert done.code == 2
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("mrflight: inputs.visits")


def test_a_job_without_the_native_kernel_says_so_once(clicks: Path, tmp_path: Path) -> None:
    write_visits(tmp_path / "visits", "csv")
    hidden = "import sys\nsys.modules['mrflight._kernel'] = None\n"
    (tmp_path / "sitecustomize.py").write_text(hidden)
    done = drive(clicks, environment={"PYTHONPATH": str(tmp_path)})
    assert done.result["state"] == "committed"
    assert done.stderr.splitlines()[0].startswith("mrflight runs without its native kernel")
    assert done.stderr.count("kernel") == 1


@pytest.mark.runs_on_ray(False, "what functions print is in Ray's logs")
def test_what_a_map_prints_does_not_reach_the_result(clicks: Path, tmp_path: Path) -> None:
    write_visits(tmp_path / "visits", "csv")
    shouting = WEIGH.replace("    return", "    print('working', end='', flush=True)\n    return")
    (tmp_path / "clicks.py").write_text(shouting)
    done = drive(clicks)
    assert done.result["state"] == "committed"
    assert "working" in done.stderr
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.runs_on_ray(False, "what functions print is in Ray's logs")
def test_what_functions_print_is_for_people(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    (tmp_path / "rows.csv").write_text("k\n1\n2\n")
    (tmp_path / "prints.py").write_text(
        "def rows(batch):\n    print('map saw', batch.num_rows)\n    return batch\n"
        "def table(table):\n    print('reduce saw', table.num_rows)\n    return table\n"
    )
    job = write_job(
        tmp_path,
        """
[job]
name = "prints"
[inputs.rows]
path = "rows.csv"
map = "prints:rows"
key = ["k"]
[shuffle]
partitions = 1
[reduce]
function = "prints:table"
[output]
table = "out"
""",
    )
    done = drive(job)
    assert done.code == 0, done.stderr
    assert "map saw 2\n" in done.stderr
    assert "reduce saw 2\n" in done.stderr
    assert len(done.stdout.splitlines()) == 1
    with terminal() as screen:
        run = subprocess.Popen(
            [*driver_command(job), "--set", "output.mode=overwrite"],
            stdout=subprocess.PIPE,
            stderr=screen.descriptor,
            env={**os.environ, **ENVIRONMENT},
        )
        os.close(screen.descriptor)
        stdout, _ = run.communicate()
    assert run.returncode == 0, screen.shown
    assert b"saw" not in stdout
    lines = [line.strip() for line in screen.shown.splitlines()]
    assert lines.index("map saw 2") < lines.index("reduce saw 2")
    assert any(line.startswith("map and reduce ") and "1/1" in line for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("streams", "code", "expected"),
    [
        (">&-", 3, "could not be written to stdout: [Errno 9]"),
        ("> /dev/full", 3, "could not be written to stdout: [Errno 28]"),
        ("| exec 0<&-", 3, "could not be written to stdout: [Errno 32]"),
        ("2>&-", 0, ""),
        ("2> /dev/full", 0, ""),
    ],
)
def test_a_job_whose_streams_cannot_be_written_commits_all_the_same(
    clicks: Path, tmp_path: Path, streams: str, code: int, expected: str
) -> None:
    """Only the result of ``--json`` is missed: an exit code of its own says that it is lost."""
    write_visits(tmp_path / "visits", "csv")
    done = run_with(streams, driver_command(clicks))
    assert done.returncode == code, done.stderr
    assert expected in done.stderr
    assert ("mrflight: the job is committed, but its result" in done.stderr) == bool(expected)
    assert DeltaTable(tmp_path / "out" / "clicks").version() == 0


def test_without_json_nothing_is_written_to_stdout(clicks: Path, tmp_path: Path) -> None:
    write_visits(tmp_path / "visits", "csv")
    done = run_with("> /dev/full", [part for part in driver_command(clicks) if part != "--json"])
    assert done.returncode == 0, done.stderr


def test_a_failed_job_keeps_its_exit_code_where_its_result_cannot_be_written(
    clicks: Path,
) -> None:
    done = run_with("> /dev/full", driver_command(clicks))  # there are no visits
    assert done.returncode == 2, done.stderr
    assert "mrflight: the job has failed, and its result could not be written" in done.stderr


def run_with(streams: str, command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command with redirections of bash; the code is the command's own."""
    line = f"{shlex.join(command)} {streams}; exit ${{PIPESTATUS[0]}}"
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
