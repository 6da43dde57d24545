"""The fault matrix: a driver is killed, and the run after it commits once."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrflight.result import Attempts
from tests.support.clusters.cluster import await_no_shuffles, standing_cluster
from tests.support.faults import faulty_job
from tests.support.faults import faulty_run as faults
from tests.support.faults.attempt_log import AttemptLog
from tests.support.faults.deeds import pause
from tests.support.faults.failing_disk import flip_byte
from tests.support.faults.faulty_run import faulty_run
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
from tests.support.faults.stopped_driver import Deed, Plan
from tests.support.suite.waiting import await_end

pytestmark = [pytest.mark.runs_on_ray, pytest.mark.slow]

SIGKILL = -9
SHORT_LEASE = Plan(lease_s=3.0)


# What the run after it costs.
KILLS = [
    Cell("driver", "kill", "map"),
    Cell("driver", "kill", "shuffle"),
    Cell("driver", "kill", "reduce"),
    Cell("driver", "kill", "commit"),
]

UNREADABLE = Cell(
    "driver", "corrupt", "commit", Attempts(5, 8, 0), "the Delta table .*/out cannot be read"
)


@pytest.mark.also_on_ray("kill-driver-commit")
@pytest.mark.parametrize("cell", KILLS, ids=str)
def test_a_killed_driver(cell: Cell, tmp_path: Path) -> None:
    with at_the_moment(tmp_path, cell.when) as (run, victims):
        hit(run, cell.when, lambda: faults.kill(victims["driver"]), is_its_end=True)
        assert await_end(run.driver, "the driver") == SIGKILL
    assert rows_of(tmp_path) == [faulty_job.BEFORE]
    left = unlisted(tmp_path)
    assert len(left) >= MOMENTS[cell.when].reduces_done
    assert {line.split("  ")[0] for line in clean(tmp_path).splitlines()} == left
    check_rerun(tmp_path, cell)


def test_a_driver_that_is_killed_between_its_commit_and_its_answer(tmp_path: Path) -> None:
    job = faulty_job.write_faulty_job(tmp_path)
    with faulty_run(job, (), plan=Plan((Deed("result is printed", "SIGKILL"),))) as run:
        assert await_end(run.driver, "the driver") == SIGKILL
    assert rows_of(tmp_path) == faulty_job.expected_rows()
    check_committed_before(tmp_path)


def check_committed_before(folder: Path) -> None:
    """Assert that the job, run again, does nothing, as it is committed."""
    with faulty_run(folder / "job.toml", ()) as run:
        done = run.finish()
    assert done.code == 0, done.stderr
    assert "is already committed" in done.stderr
    assert AttemptLog(folder, done.result["job_id"]).reasons() == {}
    assert rows_of(folder) == faulty_job.expected_rows()
    assert not log_entry(folder, 2).exists()


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
    check_rerun(tmp_path, Cell("driver", "corrupt", "commit"))


# On a standing cluster, where shuffles outlive their driver by their lease


def test_a_killed_driver_frees_its_shuffles_on_a_standing_cluster(tmp_path: Path) -> None:
    with standing_cluster() as cluster:
        with at_the_moment(tmp_path, "shuffle", standing=cluster.metadata, plan=SHORT_LEASE) as (
            _,
            victims,
        ):
            faults.kill(victims["driver"])
            await_no_shuffles(cluster.metadata)
        assert rows_of(tmp_path) == [faulty_job.BEFORE]
        check_rerun(tmp_path, Cell("driver", "kill", "shuffle"), cluster.metadata)


def test_a_driver_that_is_stopped_for_less_than_its_lease_goes_on(tmp_path: Path) -> None:
    with standing_cluster() as cluster:
        with at_the_moment(tmp_path, "map", standing=cluster.metadata) as (
            run,
            victims,
        ):
            pause(run, victims["driver"])
            done = run.finish()
        check(Cell("driver", "pause", "map"), done, tmp_path)
        await_no_shuffles(cluster.metadata)


def test_a_driver_that_is_stopped_for_longer_than_its_lease_fails(tmp_path: Path) -> None:
    with standing_cluster() as cluster:
        with at_the_moment(tmp_path, "map", standing=cluster.metadata, plan=SHORT_LEASE) as (
            run,
            victims,
        ):
            faults.stop(victims["driver"])
            await_no_shuffles(cluster.metadata)
            victims["driver"].resume()
            run.go_on()
            done = run.finish()
        costs = Attempts(5, 0, 0)
        says = "it was never created, or it has been dropped"
        check_failed(Cell("driver", "stop", "map", costs, says), done, tmp_path)
