"""The fault matrix has a test, or a reason, for each fault of each process in each phase.

    fault      worker          data server         metadata server  driver
    kill       test_matrix     test_matrix         test_matrix      ..._drivers
    stall      test_matrix     test_matrix         test_matrix      test_matrix
    corrupt    ..._transports  ..._damaged_blocks  ..._journals     ..._drivers
    full disk  ..._full_disks  ..._full_disks      ..._journals     ..._full_disks

Faults of those that send and receive blocks have tests with blocks in shared memory and tests with
blocks over Flight. They are no product: each moment is there over one transport, and over both
where a reader or a writer notices that its server is gone or that its blocks are damaged.

    over       worker                      data server
    shared     kill, stall, full disk      kill, stall, corrupt, full disk
    Flight     kill, stall, corrupt        kill, stall, corrupt, full disk

Beside the matrix there are ..._standing_clusters, whose servers nobody restarts, and
..._failed_attempts; test_lost_skewed_partition and test_damaged_skewed_partition are about merges.

Blocks on their way from writer to reader, journals, and a table's log are damaged. Nobody checks a
hash of what a worker holds in memory before it encodes blocks and after it has decoded them, of its
local files of a partition that is too large for its memory, or of part files.
"""

from __future__ import annotations

from itertools import product

from tests.fault import (
    test_matrix,
    test_matrix_damaged_blocks,
    test_matrix_drivers,
    test_matrix_full_disks,
    test_matrix_journals,
    test_matrix_transports,
)
from tests.support.faults.matrix import OVER_FLIGHT, Cell

PARTS = ("worker", "data server", "metadata server", "driver")

FAULTS = {
    "kill": {"kill"},
    "stall": {"stop", "pause"},
    "corrupt": {"corrupt", "truncate", "tear", "cut"},
    "full disk": {"full"},
}

WHEN = ("map", "shuffle", "reduce", "commit")

IT_HAS_NO_ROW = "it sees no row, and reads no file between its start and its commit"
CANNOT_BE = {
    ("worker", "corrupt", "commit"): "it sends and reads no block any more",
    ("driver", "corrupt", "map"): IT_HAS_NO_ROW,
    ("driver", "corrupt", "shuffle"): IT_HAS_NO_ROW,
    ("driver", "corrupt", "reduce"): IT_HAS_NO_ROW,
}

MOVING = ("worker", "data server")

OVER = ("in shared memory", "over Flight")
OVER_ONE = {
    ("worker", "corrupt", "in shared memory"): "blocks are sealed on their way in shared memory",
    ("worker", "full disk", "over Flight"): "a worker's files hold no blocks",
}

CELLS = [
    *test_matrix.CELLS,
    *test_matrix_damaged_blocks.CELLS,
    *test_matrix_drivers.KILLS,
    test_matrix_drivers.UNREADABLE,
    *test_matrix_full_disks.GOES_ON,
    *test_matrix_full_disks.FAILS,
    *(cell for cell, _ in test_matrix_full_disks.FOR_A_WHILE),
    *test_matrix_journals.GOES_ON,
    *test_matrix_journals.FAILS,
    *test_matrix_journals.REFUSES,
    *test_matrix_transports.SENT,
    *test_matrix_transports.READ,
]


def place_of(cell: Cell) -> tuple[str, str, str]:
    """The part, the fault and the moment, without what makes a variant of them."""
    (part,) = (part for part in PARTS if cell.who in (part, f"{part}s"))
    (fault,) = (fault for fault, names in FAULTS.items() if cell.fault.split()[0] in names)
    return part, fault, cell.when.split()[0]


def test_every_fault_of_every_part_at_every_moment_is_tested_or_cannot_be() -> None:
    tested = {place_of(cell) for cell in CELLS}
    assert tested.isdisjoint(CANNOT_BE)
    assert tested | CANNOT_BE.keys() == set(product(PARTS, FAULTS, WHEN))


def test_every_fault_of_who_moves_blocks_is_tested_over_both_transports() -> None:
    tested = {
        (part, fault, OVER[OVER_FLIGHT in cell.options])
        for cell in CELLS
        for part, fault, when in [place_of(cell)]
        if part in MOVING and when != "commit"
    }
    assert tested.isdisjoint(OVER_ONE)
    assert tested | OVER_ONE.keys() == set(product(MOVING, FAULTS, OVER))
