"""The fault matrix: which process is killed or suspended, when, and how many attempts that costs.

test_matrix_is_complete.py says where each other fault is tested.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.faults.deeds import DO
from tests.support.faults.faulty_job import SPECULATES, WATCHED
from tests.support.faults.faulty_run import FaultyRun
from tests.support.faults.matrix import (
    KILLED,
    TWICE,
    Cell,
    at_the_moment,
    check,
    check_goes_on,
    driver_says,
    maps_end,
    over_both,
    over_flight,
)

pytestmark = pytest.mark.runs_on_ray

AGAIN = r"[35] of 5 map tasks run again, as their output was lost with \S+/data\d\.sock\n"
SPECULATIVE = (
    r"(map 3 .*|reduce of partition \d) has taken \d+ s, .*; a speculative attempt is started"
)
SILENT = "the metadata server has not answered for 4 s and is ended"
RESTARTED = "the metadata server was killed by SIGKILL; it is started again"

# What a data server holds without a replica all maps have to send again: 3 that were done, and 2
# that were running; at the reduce all 5.
IN_THE_MAP = {"map again": 3, "map moved": 2}
IN_THE_REDUCE = {"map again": 5, "reduce moved": 1}

# The reader gives up, and nobody misses a heartbeat.
HASTY = ("cluster.stream_timeout=4 s",)
LATE = r"reduce of partition \d runs again: .* did not answer in time"

# It is all there is: maps, or two reduces, wait for the one that takes its place.
SINGLE = ("cluster.data_servers=1", *WATCHED)
ENDED = "the data server data0 has not answered for 4 s and is ended"

WATCHED_TWICE = (*TWICE, *WATCHED)
SEEN_LATER = (*TWICE, "cluster.heartbeat_timeout=12 s")
"""A reduce is to read from it before it is ended, or its end would lead to a replica at once."""


def reduce_6_runs(run: FaultyRun) -> None:
    """Wait until a task reads from the data server that is hit."""
    run.await_running("reduce of partition 6")


# A pause is shorter than any timeout, so nothing may come of it: once for each part, at another
# moment each; the driver, which nobody watches, at all of them.
#
# Every fault of a worker and of a data server is there over each transport, and every moment of it
# over one: test_matrix_is_complete.py. Where it depends on who notices first that a data server is
# gone, the tasks or the driver, there is a cell for each.
CELLS = [
    #    who                 fault    when
    Cell("worker", "kill", "map", {"map failed": 1}, KILLED),
    *over_both(Cell("worker", "kill", "shuffle", {"map failed": 1}, KILLED)),
    Cell("worker", "kill", "reduce", {"reduce failed": 1}, KILLED),
    Cell("worker", "kill", "commit"),
    over_flight(Cell("worker", "stop", "map", {"map overtaken": 1}, SPECULATIVE, SPECULATES)),
    Cell("worker", "stop", "shuffle", {"map overtaken": 1}, SPECULATIVE, SPECULATES),
    over_flight(Cell("worker", "stop", "reduce", {"reduce overtaken": 1}, SPECULATIVE, SPECULATES)),
    Cell("worker", "stop", "commit"),
    Cell("worker", "pause", "map"),
    Cell("data server", "kill", "map", IN_THE_MAP, AGAIN),
    Cell("data server", "kill", "map", IN_THE_MAP, AGAIN, WATCHED, first=driver_says("run again")),
    *over_both(Cell("data server", "kill", "shuffle", IN_THE_MAP, AGAIN)),
    *over_both(Cell("data server", "kill", "reduce", IN_THE_REDUCE, AGAIN)),
    # Neither of the two reduces that run reads from it, and none that would has begun.
    Cell(
        *("data server", "kill", "reduce", {"map again": 5}, AGAIN, WATCHED),
        first=driver_says("run again"),
    ),
    Cell("data server", "kill", "commit"),
    Cell("data server", "stop", "map", IN_THE_MAP, AGAIN, WATCHED),
    over_flight(Cell("data server", "stop", "shuffle", IN_THE_MAP, AGAIN, WATCHED)),
    Cell("data server", "stop", "reduce", IN_THE_REDUCE, AGAIN, WATCHED, last=reduce_6_runs),
    over_flight(Cell("data server", "stop", "reduce", IN_THE_REDUCE, LATE, HASTY)),
    Cell("data server", "stop", "commit"),
    over_flight(Cell("data server", "stop", "map", IN_THE_MAP, ENDED, SINGLE)),
    Cell(
        *("data server", "stop", "reduce", {"map again": 5, "reduce moved": 2}, ENDED, SINGLE),
        first=driver_says("run again"),
    ),
    over_flight(Cell("data server", "pause", "reduce")),
    Cell(
        *("data server", "kill", "map", {"map moved": 2}, "2 of 5 map tasks restart"),
        WATCHED_TWICE,
        first=driver_says("map tasks restart"),
    ),
    *over_both(
        Cell("data server", "kill", "shuffle", {}, "going on without", TWICE, last=maps_end)
    ),
    *over_both(Cell("data server", "kill", "reduce", {}, "going on at a replica", TWICE)),
    # The two maps, or the reduce, that wait for it are begun anew with the other copy.
    over_flight(Cell("data server", "stop", "shuffle", {"map moved": 2}, "", WATCHED_TWICE)),
    over_flight(
        Cell(
            *("data server", "stop", "reduce", {"reduce moved": 1}, "", SEEN_LATER),
            last=reduce_6_runs,
        )
    ),
    Cell("data server", "stop", "reduce", {}, "going on at a replica", (*TWICE, *HASTY)),
    Cell("metadata server", "kill", "map", {}, RESTARTED),
    Cell("metadata server", "kill", "shuffle", {}, RESTARTED),
    Cell("metadata server", "kill", "reduce", {}, RESTARTED),
    Cell("metadata server", "kill", "commit"),
    Cell("metadata server", "stop", "map", {}, SILENT, WATCHED),
    Cell("metadata server", "stop", "shuffle", {}, SILENT, WATCHED),
    Cell("metadata server", "stop", "reduce", {}, SILENT, WATCHED),
    Cell("metadata server", "stop", "commit"),
    Cell("metadata server", "pause", "shuffle"),
    Cell("driver", "pause", "map"),
    Cell("driver", "pause", "shuffle"),
    Cell("driver", "pause", "reduce"),
    Cell("driver", "pause", "commit"),
]


QUICK = {
    *("kill-worker-shuffle", "kill-worker-reduce", "kill-metadata-server-reduce"),
    *("kill-data-server-map", "kill-data-server-reduce"),
    "kill-data-server-shuffle-shuffle.replicas=2-tasks-notice",
}
"""A kill of each process, with each way to go on. Who is stopped makes others wait for seconds."""
ON_RAY = (
    "kill-worker-shuffle",
    "kill-data-server-reduce",
    "kill-metadata-server-reduce",
    "stop-data-server-map-cluster.heartbeat_timeout=4-s",
)

assert set(map(str, CELLS)) > {*QUICK, *ON_RAY}


@pytest.mark.also_on_ray(*ON_RAY)
@pytest.mark.parametrize(
    "cell",
    [pytest.param(cell, marks=() if str(cell) in QUICK else pytest.mark.slow) for cell in CELLS],
    ids=str,
)
def test_the_job_goes_on(cell: Cell, tmp_path: Path) -> None:
    check_goes_on(cell, tmp_path)


@pytest.mark.slow
def test_a_reduce_that_has_read_its_rows_runs_again_if_their_server_is_lost(
    tmp_path: Path,
) -> None:
    """One of two data servers holds partitions 4 and 6. It is killed once 4 and 5 were read.

    If reduce 5 ends first, its worker begins 6 and finds the server gone, while reduce 4 still
    runs. So two reduces run again: ten in all, not nine.
    """
    two = "cluster.data_servers=2"
    costs = {"map again": 5, "reduce moved": 2}
    cell = Cell("data server", "kill", "reduce", costs, AGAIN, (two,))
    with at_the_moment(tmp_path, "reduce", *cell.options) as (run, victims):
        DO["kill"](run, victims["data server"])
        run.go_on("reduce 5")
        run.has_said("reduce of partition 6 runs again")
        run.go_on()
        check(cell, run.finish(), tmp_path)
