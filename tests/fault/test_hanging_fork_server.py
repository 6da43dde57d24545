"""A fork server that hangs: the job needs it to start processes, and to end them."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.faults import faulty_job
from tests.support.faults import faulty_run as faults
from tests.support.faults.faulty_run import FaultyRun, faulty_run
from tests.support.faults.hanging_process import unresponsive
from tests.support.faults.matrix import BEGINNING, rows_of, unlisted
from tests.support.faults.stopped_driver import Plan

STOPS = ("map 3 batch 2", "map 4 batch 0")


def stop_the_fork_server(run: FaultyRun) -> None:
    (fork_server,) = run.processes("forks")
    faults.stop(fork_server)


def check(run: FaultyRun, folder: Path, costs: dict[str, int]) -> None:
    """Assert that the job ends as it should, and says that the fork server goes on."""
    run.go_on()
    done = run.finish()
    assert done.code == 0, done.stderr
    assert "was stopped and is continued" in done.stderr
    assert run.attempts().reasons() == {**BEGINNING, **costs}, done.stderr
    assert rows_of(folder) == faulty_job.expected_rows()
    assert unlisted(folder) == set()


def test_a_job_that_starts_no_process_ends_as_ever(tmp_path: Path) -> None:
    job = faulty_job.write_faulty_job(tmp_path, reduce=faulty_job.AGGREGATE)
    with faulty_run(job, STOPS) as run:
        run.at(*STOPS)
        stop_the_fork_server(run)
        check(run, tmp_path, {})


@pytest.mark.slow
def test_a_worker_that_dies_meanwhile_is_started_again(tmp_path: Path) -> None:
    """The fork server, which knows that it died and starts another, is let go on for that."""
    job = faulty_job.write_faulty_job(tmp_path, reduce=faulty_job.AGGREGATE)
    with faulty_run(job, STOPS, *faulty_job.WATCHED) as run:
        worker, _ = run.at(*STOPS)
        stop_the_fork_server(run)
        worker.kill()
        check(run, tmp_path, {"map failed": 1})


@pytest.mark.slow_but("a server-is stopped")
@pytest.mark.parametrize(
    ("dies", "how"),
    [
        ("nobody", "hangs"),
        ("a server", "is stopped"),
        pytest.param("nobody", "is stopped", marks=pytest.mark.slow),
        pytest.param("a worker", "is stopped", marks=pytest.mark.slow),
        pytest.param("a worker", "hangs", marks=pytest.mark.slow),
        pytest.param("a server", "hangs", marks=pytest.mark.slow),
    ],
)
def test_an_interrupt(dies: str, how: str, tmp_path: Path) -> None:
    """Also while a server, or a worker, is waited for that is to take the place of the dead one."""
    job = faulty_job.write_faulty_job(tmp_path)
    with faulty_run(job, STOPS, plan=Plan()) as run:
        worker, _ = run.at(*STOPS)
        (fork_server,) = run.processes("forks")
        with unresponsive(fork_server, how):
            if dies != "nobody":
                (worker if dies == "a worker" else run.processes("data")[0]).kill()
            run.driver.send_signal(signal.SIGINT)
            done = run.finish()
        assert done.code == 130, done.stderr
    assert rows_of(tmp_path) == [faulty_job.BEFORE]
    assert unlisted(tmp_path) == set()
