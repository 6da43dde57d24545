"""The fault matrix: what a job cannot survive, and how it ends: soon, told why, without a trace."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.support import faulty_job
from tests.support.fault_matrix import (
    DO,
    KILLED,
    SPILLING,
    Cell,
    at_the_moment,
    check,
    check_failed,
    full_disk,
    hit,
)
from tests.support.faults import faulty_run

ALONE = ("cluster.data_servers=1", "cluster.reconnect_timeout=1 s")

NO_ROOM = (
    r"cannot spill .* below .*mrflight-job-.*: .*File too large; make room there, .*: "
    r"[\d.]+ \S+ were to be written beside [\d.]+ \S+ of the shuffle\n  in map \d"
)
NO_PART = r"out/part-\d+-\d-.* cannot be written: .*File too large.*\n  in reduce of partition \d"
NO_COMMIT = r"the Delta table .*/out did not take the commit: .*File too large"

FAILS = [
    Cell("data server", "full disk", "shuffle", 0, 0, 0, NO_ROOM, (*SPILLING, *ALONE)),
    Cell("workers", "full disk", "reduce", 0, 0, 0, NO_PART),
    Cell("driver", "full disk", "commit", 0, 0, 0, NO_COMMIT),
]


@pytest.mark.skipif(sys.platform != "linux", reason="prlimit")
@pytest.mark.parametrize("cell", FAILS, ids=str)
def test_the_job_fails_and_leaves_the_table_alone(cell: Cell, tmp_path: Path) -> None:
    do = {**DO, "full disk": full_disk}[cell.fault]
    with at_the_moment(tmp_path, cell.when, *cell.options) as (run, victims):
        hits = run.processes("worker") if cell.who == "workers" else [victims[cell.who]]
        hit(run, cell.when, lambda: [do(run, victim) for victim in hits])
        done = run.finish()
    check_failed(done, cell.says, tmp_path)


def test_a_worker_that_is_killed_each_time(tmp_path: Path) -> None:
    job = faulty_job.write_faulty_job(tmp_path, "dies")
    with faulty_run(job, ()) as run:
        done = run.finish()
    for attempt in (1, 2, 3):
        assert re.search(
            rf": attempt {attempt} of 4 failed and is made again: a worker", done.stderr
        )
    check_failed(
        done, r"ended in the middle of a task: .*\n  in map \d \(rows, .*attempt 4", tmp_path
    )


def test_a_worker_that_is_killed_between_its_commit_and_its_answer(tmp_path: Path) -> None:
    """The attempt after it learns that the rows are there already."""
    job = faulty_job.write_faulty_job(tmp_path, "dies_once_committed")
    with faulty_run(job, ()) as run:
        done = run.finish()
    assert (tmp_path / "places" / "map 3 is").readlink() == Path("COMMITTED")
    check(Cell("worker", "kill", "its commit", 6, 8, 1, KILLED), done, tmp_path)


def test_maps_that_send_other_rows_each_time(tmp_path: Path) -> None:
    """What is lost of them cannot be made again alone: all is made anew, in another shuffle."""
    with at_the_moment(tmp_path, "reduce", "inputs.rows.map=functions:other_rows_each_time") as (
        run,
        victims,
    ):
        hit(run, "reduce", lambda: DO["kill"](run, victims["data server"]))
        done = run.finish()
    # Of the maps 5, then those of 5 that had begun to send again what was lost when the first of
    # them was refused, and 5 in the second shuffle. Of the reduces 8 in each shuffle.
    says = "all maps and reduces are made again: map . of shuffle .* was run again, .* other rows"
    cell = Cell("data server", "kill", "reduce", range(11, 16), 16, 1, says)
    check(cell, done, tmp_path)
