"""The fault matrix: a driver is killed, and the run after it commits once."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.support.clusters.cluster import await_no_shuffles, standing_cluster
from tests.support.faults import faulty_job
from tests.support.faults import faulty_run as faults
from tests.support.faults.deeds import PAUSE_S, pause
from tests.support.faults.failing_disk import flip_byte
from tests.support.faults.faulty_run import await_that, faulty_run, slow_commit
from tests.support.faults.matrix import (
    MOMENTS,
    Cell,
    at_the_moment,
    check,
    check_failed,
    check_failure,
    check_rerun,
    clean,
    hit,
    log_entry,
    rows_of,
    unlisted,
)

pytestmark = pytest.mark.slow

SIGKILL = -9
LEASE_S = PAUSE_S + 2.0


# What the run after it costs.
KILLS = [
    Cell("driver", "kill", "map", 5, 8),
    Cell("driver", "kill", "shuffle", 5, 8),
    Cell("driver", "kill", "reduce", 5, 8),
    Cell("driver", "kill", "commit", 5, 8),
]

UNREADABLE = Cell("driver", "corrupt", "commit", 5, 8, 0, "the Delta table .*/out cannot be read")


@pytest.mark.parametrize("cell", KILLS, ids=str)
def test_a_killed_driver(cell: Cell, tmp_path: Path) -> None:
    with at_the_moment(tmp_path, cell.when) as (run, victims):
        hit(run, cell.when, lambda: faults.kill(victims["driver"]), is_its_end=True)
        assert run.driver.wait(faults.DEADLINE_S) == SIGKILL
    assert rows_of(tmp_path) == [faulty_job.BEFORE]
    left = unlisted(tmp_path)
    assert len(left) >= MOMENTS[cell.when].reduces_done
    assert {line.split("  ")[0] for line in clean(tmp_path).splitlines()} == left
    check_rerun(tmp_path, cell)


def test_a_driver_that_is_killed_between_its_commit_and_its_answer(tmp_path: Path) -> None:
    """It has no room in its stderr to say that it has committed."""
    moment = MOMENTS["commit"]
    job = faulty_job.write_faulty_job(tmp_path, moment.map_function, moment.reduce)
    reading, writing = os.pipe()
    with faulty_run(job, moment.stops, stderr_to=writing) as run:
        run.at(*moment.stops)
        with slow_commit(tmp_path / "out") as let_through:
            run.go_on()
            printed = b""
            while b"rows written" not in printed:
                printed += os.read(reading, 4096)
            fill(writing)
            let_through()
        await_that(log_entry(tmp_path, 1).exists, "the commit")
        assert run.driver.poll() is None
        faults.kill(psutil.Process(run.driver.pid))
        assert run.driver.wait(faults.DEADLINE_S) == SIGKILL
    os.close(reading)
    os.close(writing)
    assert rows_of(tmp_path) == faulty_job.expected_rows()
    check_rerun(tmp_path, Cell("driver", "kill", "answer", 0, 0, 0, "is already committed"))


def fill(pipe: int) -> None:
    """Write to a pipe until nothing more goes in."""
    other = os.open(f"/proc/self/fd/{pipe}", os.O_WRONLY | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        while True:
            os.write(other, b".")
    os.close(other)


def test_a_driver_that_cannot_read_the_log_when_it_commits(tmp_path: Path) -> None:
    """So it cannot know that nothing of its files was committed, and leaves them to ``clean``."""
    cell = UNREADABLE
    before = log_entry(tmp_path, 0)
    with at_the_moment(tmp_path, cell.when) as (run, _):
        whole = before.read_bytes()
        hit(run, cell.when, lambda: flip_byte(before, 0))
        done = run.finish()
    before.write_bytes(whole)
    check_failure(cell, done)
    assert rows_of(tmp_path) == [faulty_job.BEFORE]
    left = unlisted(tmp_path)
    assert {line.split("  ")[0] for line in clean(tmp_path).splitlines()} == left
    check_rerun(tmp_path, Cell("driver", "corrupt", "commit", 5, 8))


# On a standing cluster, where shuffles outlive their driver by their lease


def test_a_killed_driver_frees_its_shuffles_on_a_standing_cluster(tmp_path: Path) -> None:
    with standing_cluster() as cluster:
        with at_the_moment(tmp_path, "shuffle", standing=cluster.metadata, lease_s=1.0) as (
            _,
            victims,
        ):
            faults.kill(victims["driver"])
            await_no_shuffles(cluster.metadata)
        assert rows_of(tmp_path) == [faulty_job.BEFORE]
        check_rerun(tmp_path, Cell("driver", "kill", "shuffle", 5, 8), cluster.metadata)


def test_a_driver_that_is_stopped_for_less_than_its_lease_goes_on(tmp_path: Path) -> None:
    with standing_cluster() as cluster:
        with at_the_moment(tmp_path, "map", standing=cluster.metadata, lease_s=LEASE_S) as (
            run,
            victims,
        ):
            pause(run, victims["driver"])
            done = run.finish()
        check(Cell("driver", "pause", "map", 5, 8), done, tmp_path)
        await_no_shuffles(cluster.metadata)


def test_a_driver_that_is_stopped_for_longer_than_its_lease_fails(tmp_path: Path) -> None:
    with standing_cluster() as cluster:
        with at_the_moment(tmp_path, "map", standing=cluster.metadata, lease_s=1.0) as (
            run,
            victims,
        ):
            faults.stop(victims["driver"])
            await_no_shuffles(cluster.metadata)
            victims["driver"].resume()
            run.go_on()
            done = run.finish()
        says = "it was never created, or it has been dropped"
        check_failed(Cell("driver", "stop", "map", 5, 0, 0, says), done, tmp_path)
