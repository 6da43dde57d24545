"""The fault matrix: which process is killed or suspended, when, and how many attempts that costs.

test_matrix_is_complete.py says where each other fault is tested.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.faults.deeds import DO
from tests.support.faults.matrix import (
    KILLED,
    TWICE,
    Cell,
    at_the_moment,
    check,
    check_goes_on,
    over_both,
    over_flight,
)

AGAIN = r"[35] of 5 map tasks run again, as their output was lost with \S+/data\d\.sock\n"
SPECULATIVE = (
    r"(map 3 .*|reduce of partition \d) has taken \d s, .*; a speculative attempt is started"
)
SILENT = "the metadata server has not answered for 2 s and is ended"
RESTARTED = "the metadata server was killed by SIGKILL; it is started again"

# Of 5 maps and 8 reduces. What a data server holds without a replica all maps have to send again:
# 3 that were done, and 2 that were running; at the reduce all 5.
PATIENT = ("cluster.heartbeat_timeout=10 s",)  # with 2 s it would be ended before it has a twin

# A reduce that waits for a server would have a twin after 2 s, if that is not missed before.
ALONE = ("job.speculation=false",)

# The reader gives up before anybody misses a heartbeat.
HASTY = ("cluster.heartbeat_timeout=1 min", "cluster.stream_timeout=1 s")
LATE = r"reduce of partition \d runs again: .* did not answer in time"

# It is all there is: maps, or two reduces, wait for the one that takes its place.
SINGLE = ("cluster.data_servers=1",)
ENDED = "the data server data0 has not answered for 2 s and is ended"

# A pause is shorter than any timeout, so nothing may come of it: once for each part, at another
# moment each; the driver, which nobody watches, at all of them.
#
# Every fault of a worker and of a data server is there over each transport, and every moment of it
# over one: test_matrix_is_complete.py.
CELLS = [
    #    who                 fault    when       maps reduces failed
    Cell("worker", "kill", "map", 6, 8, 1, KILLED),
    *over_both(Cell("worker", "kill", "shuffle", 6, 8, 1, KILLED)),
    Cell("worker", "kill", "reduce", 5, 9, 1, KILLED),
    Cell("worker", "kill", "commit", 5, 8),
    over_flight(Cell("worker", "stop", "map", 6, 8, 0, SPECULATIVE, PATIENT)),
    Cell("worker", "stop", "shuffle", 6, 8, 0, SPECULATIVE, PATIENT),
    over_flight(Cell("worker", "stop", "reduce", 5, 9, 0, SPECULATIVE, PATIENT)),
    Cell("worker", "stop", "commit", 5, 8),
    Cell("worker", "pause", "map", 5, 8),
    Cell("data server", "kill", "map", 10, 8, 0, AGAIN),
    *over_both(Cell("data server", "kill", "shuffle", 10, 8, 0, AGAIN)),
    *over_both(Cell("data server", "kill", "reduce", 10, 9, 0, AGAIN)),
    Cell("data server", "kill", "commit", 5, 8),
    Cell("data server", "stop", "map", 10, 8, 0, AGAIN),
    over_flight(Cell("data server", "stop", "shuffle", 10, 8, 0, AGAIN)),
    Cell("data server", "stop", "reduce", 10, 9, 0, AGAIN, ALONE),
    over_flight(Cell("data server", "stop", "reduce", 10, 9, 0, LATE, (*HASTY, *ALONE))),
    Cell("data server", "stop", "commit", 5, 8),
    over_flight(Cell("data server", "stop", "map", 10, 8, 0, ENDED, SINGLE)),
    Cell("data server", "stop", "reduce", 10, 10, 0, ENDED, (*SINGLE, *ALONE)),
    over_flight(Cell("data server", "pause", "reduce", 5, 8)),
    Cell("data server", "kill", "map", 5, 8, 0, "", TWICE, may_restart=2),
    *over_both(
        Cell("data server", "kill", "shuffle", 5, 8, 0, "going on without", TWICE, may_restart=2)
    ),
    *over_both(Cell("data server", "kill", "reduce", 5, 8, 0, "going on at a replica", TWICE)),
    # The two maps, or the reduce, that wait for it are begun anew with the other copy.
    over_flight(Cell("data server", "stop", "shuffle", 7, 8, 0, "", TWICE)),
    Cell("data server", "stop", "reduce", 5, 9, 0, "", (*TWICE, *ALONE)),
    Cell("metadata server", "kill", "map", 5, 8, 0, RESTARTED),
    Cell("metadata server", "kill", "shuffle", 5, 8, 0, RESTARTED),
    Cell("metadata server", "kill", "reduce", 5, 8, 0, RESTARTED),
    Cell("metadata server", "kill", "commit", 5, 8),
    Cell("metadata server", "stop", "map", 5, 8, 0, SILENT, ALONE),
    Cell("metadata server", "stop", "shuffle", 5, 8, 0, SILENT, ALONE),
    Cell("metadata server", "stop", "reduce", 5, 8, 0, SILENT, ALONE),
    Cell("metadata server", "stop", "commit", 5, 8),
    Cell("metadata server", "pause", "shuffle", 5, 8),
    Cell("driver", "pause", "map", 5, 8),
    Cell("driver", "pause", "shuffle", 5, 8),
    Cell("driver", "pause", "reduce", 5, 8),
    Cell("driver", "pause", "commit", 5, 8),
]


QUICK = {
    *("kill-worker-shuffle", "kill-worker-reduce", "kill-metadata-server-reduce"),
    *("kill-data-server-map", "kill-data-server-reduce"),
    "kill-data-server-shuffle-shuffle.replicas=2",
}
"""A kill of each process, with each way to go on. Who is stopped makes others wait for seconds."""
assert set(map(str, CELLS)) > QUICK


@pytest.mark.parametrize(
    "cell",
    [pytest.param(cell, marks=() if str(cell) in QUICK else pytest.mark.slow) for cell in CELLS],
    ids=str,
)
def test_the_job_goes_on(cell: Cell, tmp_path: Path) -> None:
    check_goes_on(cell, tmp_path)


def test_a_reduce_that_has_read_its_rows_runs_again_if_their_server_is_lost(
    tmp_path: Path,
) -> None:
    """One of two data servers holds partitions 4 and 6. It is killed once 4 and 5 were read.

    If reduce 5 ends first, its worker begins 6 and finds the server gone, while reduce 4 still
    runs. So two reduces run again: ten in all, not nine.
    """
    two = "cluster.data_servers=2"
    cell = Cell("data server", "kill", "reduce", 10, 10, 0, AGAIN, (two, *ALONE))
    with at_the_moment(tmp_path, "reduce", *cell.options) as (run, victims):
        DO["kill"](run, victims["data server"])
        run.go_on("reduce 5")
        run.has_said("reduce of partition 6 runs again")
        run.go_on()
        check(cell, run.finish(), tmp_path)
