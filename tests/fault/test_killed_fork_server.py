"""A fork server is killed: servers and workers end with it, and a new one starts others.

The number of failed attempts differs: an attempt whose data server is found lost before its worker
is found lost restarts without a failure.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.support.commands.driver import drive
from tests.support.faults import faulty_job
from tests.support.faults.faulty_run import (
    FaultyRun,
    await_that,
    faulty_run,
    stop,
)
from tests.support.faults.matrix import rows_of, unlisted
from tests.support.faults.stopped_driver import Deed, Plan

SAID = (
    "the process that servers and workers are forked from was killed by SIGKILL, and they end with "
    "it; it is started again\n"
)
MAPS, REDUCES, SERVERS = 5, 8, 4
MAX_MAPS = MAPS * (2 + SERVERS)
"""Each data server is found lost by itself, after which all maps may run again, and once more when
another one has taken its place."""
IN_THE_MAP = ("map 3 batch 2", "map 4 batch 0")
MARK = "MRFLIGHT_TEST_RUN"


def kill_the_fork_server(run: FaultyRun) -> None:
    (fork_server,) = run.processes("forks")
    forked = fork_server.children(recursive=True)
    fork_server.kill()
    # One of them may go on for a moment.
    await_that(lambda: not any(map(lives, forked)), "the end of what was forked")
    run.go_on()


def lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def check(run: FaultyRun, folder: Path) -> dict[str, int]:
    """Assert that the job ends as if nothing had been; its attempts."""
    done = run.finish()
    assert done.code == 0, done.stderr
    assert done.stderr.count(SAID) == 1
    assert rows_of(folder) == faulty_job.expected_rows()
    assert unlisted(folder) == set()
    attempts: dict[str, int] = done.result["attempts"]
    return attempts


@pytest.mark.slow
def test_killed_in_the_map_stage(tmp_path: Path) -> None:
    """Two maps fail with their workers; the three others are done, and lost with the servers."""
    job = faulty_job.write_faulty_job(tmp_path, reduce=faulty_job.AGGREGATE)
    with faulty_run(job, IN_THE_MAP) as run:
        run.at(*IN_THE_MAP)
        kill_the_fork_server(run)
        attempts = check(run, tmp_path)
    assert attempts["failed"] <= 2
    # At least two are retried, and three run again.
    assert MAPS + 2 + 3 <= attempts["map"] <= MAX_MAPS + attempts["failed"]
    assert attempts["reduce"] == REDUCES


@pytest.mark.slow
def test_killed_in_the_reduce_stage(tmp_path: Path) -> None:
    job = faulty_job.write_faulty_job(tmp_path)
    stops = ("reduce 4", "reduce 5")
    with faulty_run(job, stops) as run:
        run.at(*stops)
        kill_the_fork_server(run)
        attempts = check(run, tmp_path)
    assert attempts["failed"] <= 2
    assert 2 * MAPS <= attempts["map"] <= MAX_MAPS + attempts["failed"]
    # Two are retried, and both workers may start one more for each data server that is found lost.
    assert REDUCES + 2 <= attempts["reduce"] <= REDUCES + attempts["failed"] + 2 * SERVERS


@pytest.mark.slow
def test_killed_while_the_job_starts(tmp_path: Path) -> None:
    job = faulty_job.write_faulty_job(tmp_path)
    with faulty_run(job, (), plan=Plan((Deed("servers are awaited", "SIGSTOP"),))) as run:
        driver = psutil.Process(run.driver.pid)
        await_that(lambda: driver.status() == psutil.STATUS_STOPPED, "the driver to stop itself")
        # A child that it has just forked has its name for a moment.
        run.processes("forks")[0].kill()
        driver.resume()
        attempts = check(run, tmp_path)
    # The driver has started no task. It depends on what was forked whether a server is found lost.
    assert MAPS <= attempts["map"] <= MAX_MAPS
    assert (attempts["reduce"], attempts["failed"]) == (REDUCES, 0)


@pytest.mark.slow
def test_its_driver_is_killed_while_it_is_stopped(tmp_path: Path) -> None:
    """Somebody has to end the servers, and to remove the folders: it goes on for that."""
    job = faulty_job.write_faulty_job(tmp_path)
    with faulty_run(job, IN_THE_MAP) as run:
        run.at(*IN_THE_MAP)
        (fork_server,) = run.processes("forks")
        stop(fork_server)
        run.driver.kill()
        run.driver.wait()
        await_that(lambda: not lives(fork_server), "the end of the fork server")
        await_that(lambda: not list(run.temporary.iterdir()), "its folders to go")


@pytest.mark.slow
def test_what_both_have_left_is_removed_by_the_next_job(tmp_path: Path) -> None:
    job = faulty_job.write_faulty_job(tmp_path)
    with faulty_run(job, IN_THE_MAP) as run:
        run.at(*IN_THE_MAP)
        (fork_server,) = run.processes("forks")
        stop(psutil.Process(run.driver.pid))  # or it would start another one
        forked = fork_server.children(recursive=True)
        fork_server.kill()
        await_that(lambda: not any(map(lives, forked)), "the end of what was forked")
        run.driver.kill()
        run.driver.wait()
        left = {path.name.rpartition("-")[0] for path in run.temporary.iterdir()}
        assert left == {"mrflight-job", "mrflight-sockets"}
        run.go_on()
        again = drive(job, environment={"TMPDIR": str(run.temporary), MARK: run.mark})
        assert again.code == 0, again.stderr
        assert list(run.temporary.iterdir()) == []
    assert rows_of(tmp_path) == faulty_job.expected_rows()
