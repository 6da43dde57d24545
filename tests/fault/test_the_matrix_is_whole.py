"""The fault matrix: each fault for each part at each moment is tested, or said why it cannot be.

    fault      worker           data server             metadata server   driver
    kill       test_the_matrix  test_the_matrix         test_the_matrix   ..._of_drivers
    stall      test_the_matrix  test_the_matrix         test_the_matrix   test_the_matrix
    corrupt    ..._of_transports  ..._of_damage         ..._of_journals   ..._of_drivers
    full disk  ..._of_full_disks  ..._of_full_disks     ..._of_journals   ..._of_full_disks

Beside it: ..._of_standing_clusters, whose servers nobody starts again; ..._of_failures, of single
attempts; test_a_skewed_partition_that_is_lost and ..._that_is_damaged, of merges.

Damaged are blocks, from their writers to their readers, journals, and a table's log. What a
worker has in its memory before it makes blocks and after it has decoded them, its local files of
a partition that is too large for that, and part files have no hash that anybody would look at.
"""

from __future__ import annotations

from itertools import product

from tests.fault import (
    test_the_matrix,
    test_the_matrix_of_damage,
    test_the_matrix_of_drivers,
    test_the_matrix_of_full_disks,
    test_the_matrix_of_journals,
    test_the_matrix_of_transports,
)
from tests.support.fault_matrix import Cell

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

CELLS = [
    *test_the_matrix.CELLS,
    *test_the_matrix_of_damage.CELLS,
    *test_the_matrix_of_drivers.KILLS,
    test_the_matrix_of_drivers.UNREADABLE,
    *test_the_matrix_of_full_disks.GOES_ON,
    *test_the_matrix_of_full_disks.FAILS,
    *(cell for cell, _ in test_the_matrix_of_full_disks.FOR_A_WHILE),
    *test_the_matrix_of_journals.GOES_ON,
    *test_the_matrix_of_journals.FAILS,
    *test_the_matrix_of_journals.REFUSES,
    *test_the_matrix_of_transports.SENT,
    *test_the_matrix_of_transports.READ,
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
