"""The fault matrix: disks are full, for good or for a while."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mrflight.result import Attempts
from tests.support.faults.deeds import fill_disk, room_again
from tests.support.faults.matrix import (
    MOMENTS,
    SPILLING,
    TWICE,
    Cell,
    at_the_moment,
    check,
    check_fails,
    check_goes_on,
    maps_end,
    options_of,
    over_flight,
)

pytestmark = [
    pytest.mark.runs_on_ray,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="prlimit"),
]

FULL = r"map [34] \(rows, .* runs again: cannot spill .*: \[Errno 27\] File too large; make room"
FULL_HERE = r"going on without .*\.sock: cannot spill .*: \[Errno 27\] File too large; make room"

NO_ROOM = (
    r"cannot spill .* below .*mrflight-job-.*: .*File too large; make room there, .*: "
    r"[\d.]+ \S+ were to be written beside [\d.]+ \S+ of the shuffle\n  in map \d"
)
NO_PART = r"out/part-\d+-\d-.* cannot be written: .*File too large"
NO_SPILL = (
    r"a partition larger than the memory of its reduce task is spilled to \S+/mrflight-job-\S+, "
    r"which failed with .*File too large; free space there"
)
IN_A_REDUCE = r".*\n  in reduce of partition \d"
NO_COMMIT = r"the Delta table .*/out did not take the commit: .*File too large"

ALONE = ("cluster.data_servers=1", "cluster.reconnect_timeout=1 s")

# The first attempt ends the job, or nobody knows how many there are before a task had its fourth.
ONCE = ("job.attempts=1",)

# A sixth of a reduce's part of it is 5 MiB, and a partition of wide rows has 9.
LITTLE = ("cluster.memory=500 MiB", "shuffle.memory=1 MiB")

IN_THE_MAP = {"map again": 3, "map moved": 2}
NO_REDUCE = Attempts(5, 0, 0)
A_REDUCE = Attempts(5, 8, 1)
NO_FAILURE = Attempts(5, 8, 0)

GOES_ON = [
    #    who            fault        when
    Cell("data server", "full disk", "map of rows", IN_THE_MAP, FULL, SPILLING),
    over_flight(Cell("data server", "full disk", "shuffle", IN_THE_MAP, FULL, SPILLING)),
    Cell("data server", "full disk", "shuffle", {}, FULL_HERE, (*SPILLING, *TWICE), last=maps_end),
    # From here on nothing is spilled; by merges it is: see test_damaged_skewed_partition.
    Cell("data server", "full disk", "reduce", {}, "", SPILLING),
    Cell("data server", "full disk", "commit", {}, "", SPILLING),
    Cell("workers", "full disk", "commit"),
]
FAILS = [
    Cell("data server", "full disk", "map of rows", NO_REDUCE, NO_ROOM, (*SPILLING, *ALONE)),
    over_flight(
        Cell("data server", "full disk", "shuffle", NO_REDUCE, NO_ROOM, (*SPILLING, *ALONE))
    ),
    # A map writes no file: what its worker has no room for is the first file of a reduce.
    Cell("workers", "full disk", "map", A_REDUCE, NO_PART + IN_A_REDUCE, ONCE),
    Cell("workers", "full disk", "shuffle", A_REDUCE, NO_PART + IN_A_REDUCE, ONCE),
    Cell("workers", "full disk", "shuffle", A_REDUCE, NO_SPILL + IN_A_REDUCE, (*LITTLE, *ONCE)),
    Cell("workers", "full disk", "reduce", A_REDUCE, NO_PART + IN_A_REDUCE, ONCE),
    # A driver writes no file before it commits.
    Cell("driver", "full disk", "map", NO_FAILURE, NO_COMMIT),
    Cell("driver", "full disk", "shuffle", NO_FAILURE, NO_COMMIT),
    Cell("driver", "full disk", "reduce", NO_FAILURE, NO_COMMIT),
    Cell("driver", "full disk", "commit", NO_FAILURE, NO_COMMIT),
]
MADE_AGAIN = rf"reduce of partition [45]: attempt 1 of 4 failed and is retried: .*{NO_PART}"
FOR_A_WHILE = [
    # The next attempts are begun when two reduces are.
    (Cell("workers", "full disk", "map of rows"), ("reduce 0", "reduce 1")),
    (
        Cell("workers", "full disk", "reduce", {"reduce failed": 2}, MADE_AGAIN),
        ("reduce 6", "reduce 7"),
    ),
]


@pytest.mark.parametrize("cell", GOES_ON, ids=str)
def test_the_job_goes_on(cell: Cell, tmp_path: Path) -> None:
    check_goes_on(cell, tmp_path)


@pytest.mark.parametrize("cell", FAILS, ids=str)
def test_the_job_fails_and_leaves_the_table_alone(cell: Cell, tmp_path: Path) -> None:
    check_fails(cell, tmp_path)


@pytest.mark.parametrize(("cell", "until"), FOR_A_WHILE, ids=str)
def test_a_disk_that_has_room_again(cell: Cell, until: tuple[str, str], tmp_path: Path) -> None:
    with at_the_moment(tmp_path, cell.when, *options_of(cell), later=until) as (run, _):
        workers = run.processes("worker")
        for worker in workers:
            fill_disk(worker)
        run.go_on(*MOMENTS[cell.when].stops)
        run.at(*until)
        for worker in workers:
            room_again(worker)
        run.go_on()
        done = run.finish()
    check(cell, done, tmp_path)
