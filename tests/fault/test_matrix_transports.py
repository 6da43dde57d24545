"""The fault matrix: blocks are damaged between a worker and a data server.

They are over Flight only. Shared memory is passed sealed, and nothing lies between.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.faults import faulty_job
from tests.support.faults.damaged_transport import in_front_of
from tests.support.faults.matrix import (
    MOMENTS,
    OVER_FLIGHT,
    TWICE,
    Cell,
    at_the_moment,
    check,
    check_moment,
    options_of,
)

pytestmark = pytest.mark.slow

HASHES = r"a block of \d+ bytes hashes to \w+, and \w+ were written"
REFUSED = rf"map [34] \(rows, .*: attempt 1 of 4 failed and is retried: .*{HASHES}"
NOT_READ = rf"reduce of partition \d runs again: partition \d of .*\.sock: {HASHES}"
READ_THERE = rf"going on at a replica, as .*\.sock failed: partition \d of .*\.sock: {HASHES}"

FLIGHT = (OVER_FLIGHT,)
WIDE = ("inputs.rows.map=functions:wide", OVER_FLIGHT)
COPIED = (*TWICE, OVER_FLIGHT)

SENT = [
    #    who       fault      when
    Cell("worker", "corrupt", "map of rows", {"map failed": 1}, REFUSED, FLIGHT),
    Cell("worker", "corrupt", "map of rows", {"map failed": 1}, REFUSED, COPIED),
    Cell("worker", "corrupt", "shuffle", {"map failed": 1}, REFUSED, WIDE),
]
READ = [
    Cell("worker", "corrupt", "reduce", {"map again": 5, "reduce moved": 1}, NOT_READ, FLIGHT),
    Cell("worker", "corrupt", "reduce", {}, READ_THERE, COPIED),
]


@pytest.mark.parametrize("cell", SENT, ids=str)
def test_a_block_that_is_damaged_as_it_is_sent(cell: Cell, tmp_path: Path) -> None:
    """The data server does not take it."""
    check_with_flip(cell, "to server", tmp_path)


@pytest.mark.parametrize("cell", READ, ids=str)
def test_a_block_that_is_damaged_as_it_is_read(cell: Cell, tmp_path: Path) -> None:
    """Its reader cannot know that it lies unharmed where it came from."""
    check_with_flip(cell, "from server", tmp_path)


def check_with_flip(cell: Cell, direction: str, folder: Path) -> None:
    """Flip a bit of a row, and assert that all is as the cell says."""
    start, moment = MOMENTS["start"], MOMENTS[cell.when]
    with (
        at_the_moment(folder, "start", *options_of(cell), later=moment.stops) as (run, victims),
        in_front_of(run, victims["data server"]) as transport,
    ):
        run.go_on(*start.stops)
        run.at(*moment.stops)
        check_moment(run, cell.when)
        transport.flip_bit_of(faulty_job.OF_A_VALUE, direction)
        run.go_on()
        done = run.finish()
        assert transport.counts().flipped_bits == 1
    check(cell, done, folder)
