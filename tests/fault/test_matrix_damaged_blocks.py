"""The fault matrix: blocks are damaged in the memory or on the disk of a data server.

Readers check the hash of each block, so damage costs attempts in the reduce phase only.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.faults.matrix import (
    SPILLING,
    TWICE,
    Cell,
    check_goes_on,
    over_both,
    over_flight,
)

pytestmark = [
    pytest.mark.runs_on_ray,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="writes to /proc"),
]

DAMAGED = r"partition \d of shuffle .*, of \S+/data\d\.sock: a block of \d+ bytes hashes to .*"
CORRUPT = rf"reduce of partition \d runs again: {DAMAGED}"
CORRUPT_HERE = rf"going on at a replica, as .*\.sock failed: {DAMAGED}"
CUT = r"reduce of partition \d runs again: cannot read .*\.blocks: .* too early"
CUT_HERE = r"going on at a replica, as .*\.sock failed: cannot read .*\.blocks: .* too early"

SPILLED_TWICE = (*SPILLING, *TWICE)
SENT_AGAIN = {"map again": 5, "reduce moved": 1}

CELLS = [
    #    who            fault                when
    Cell("data server", "corrupt in memory", "map of rows", SENT_AGAIN, CORRUPT),
    # In shared memory these blocks are sealed: nobody can change them.
    over_flight(Cell("data server", "corrupt in memory", "shuffle", SENT_AGAIN, CORRUPT)),
    *over_both(Cell("data server", "corrupt in memory", "reduce", SENT_AGAIN, CORRUPT)),
    Cell("data server", "corrupt in memory", "commit"),
    over_flight(Cell("data server", "corrupt in memory", "reduce", {}, CORRUPT_HERE, TWICE)),
    over_flight(
        Cell("data server", "corrupt on disk", "map of rows", SENT_AGAIN, CORRUPT, SPILLING)
    ),
    Cell("data server", "corrupt on disk", "shuffle", SENT_AGAIN, CORRUPT, SPILLING),
    *over_both(Cell("data server", "corrupt on disk", "reduce", SENT_AGAIN, CORRUPT, SPILLING)),
    Cell("data server", "corrupt on disk", "commit", {}, "", SPILLING),
    Cell("data server", "corrupt on disk", "reduce", {}, CORRUPT_HERE, SPILLED_TWICE),
    # What is spilled after it leaves a hole where the end was.
    Cell("data server", "truncate on disk", "map of rows", SENT_AGAIN, CORRUPT, SPILLING),
    over_flight(Cell("data server", "truncate on disk", "shuffle", SENT_AGAIN, CORRUPT, SPILLING)),
    *over_both(Cell("data server", "truncate on disk", "reduce", SENT_AGAIN, CUT, SPILLING)),
    Cell("data server", "truncate on disk", "commit", {}, "", SPILLING),
    over_flight(Cell("data server", "truncate on disk", "reduce", {}, CUT_HERE, SPILLED_TWICE)),
]


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_the_job_goes_on(cell: Cell, tmp_path: Path) -> None:
    check_goes_on(cell, tmp_path)
