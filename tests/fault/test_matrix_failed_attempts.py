"""The fault matrix: attempts fail in several ways, and cost an exact number of attempts."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrflight.result import Attempts
from tests.support.faults import faulty_job
from tests.support.faults.faulty_run import faulty_run, kill
from tests.support.faults.matrix import KILLED, Cell, check, check_failed

pytestmark = pytest.mark.runs_on_ray


@pytest.mark.slow
def test_a_worker_that_is_killed_each_time(tmp_path: Path) -> None:
    """All maps have three attempts before the first has its fourth: one worker takes turns.

    It gets three maps for the five files.
    """
    says = r"ended in the middle of a task: .*\n  in map 0 \(rows, .*attempt 4"
    job = faulty_job.write_faulty_job(tmp_path, "dies")
    with faulty_run(job, (), "cluster.workers=1") as run:
        done = run.finish()
    check_failed(Cell("worker", "kill", "map", Attempts(12, 0, 10), says), done, tmp_path)


def test_a_worker_that_is_killed_between_its_commit_and_its_answer(tmp_path: Path) -> None:
    """The attempt after it learns that the rows are there already."""
    job = faulty_job.write_faulty_job(tmp_path, "dies_once_committed")
    with faulty_run(job, ()) as run:
        done = run.finish()
    assert (tmp_path / "places" / "map 3 is").readlink() == Path("COMMITTED")
    check(Cell("worker", "kill", "its commit", {"map failed": 1}, KILLED), done, tmp_path)


@pytest.mark.slow
def test_maps_that_send_other_rows_each_time(tmp_path: Path) -> None:
    """Lost rows of such maps cannot be repaired alone, so all maps run again in a new shuffle."""
    job = faulty_job.write_faulty_job(tmp_path, "other_rows_each_time")
    stops = tuple(f"reduce {number}" for number in range(faulty_job.FILES))
    with faulty_run(job, stops, f"cluster.workers={faulty_job.FILES}") as run:
        run.at(*stops)
        kill(run.server_of(6))
        run.go_on()
        done = run.finish()
    # The maps of the second attempt wait for each other, so all are begun when one is refused.
    # Of the reduces 8 in each shuffle.
    says = "all maps and reduces run again: map . of shuffle .* was run again because .* other rows"
    costs = Attempts(15, 16, 1)
    check(Cell("data server", "kill", "reduce", costs, says), done, tmp_path)
