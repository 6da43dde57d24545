"""The fault matrix: blocks that are damaged, in memory and on disk, and disks that are full."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from mrflight.testing.failing_disk import flip_byte, spill_files, truncate_file
from tests.support import faults, faulty_job
from tests.support.fault_matrix import SPILLING, TWICE, Cell, check_goes_on, full_disk
from tests.support.faults import FaultyRun

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="prlimit, and writes to /proc")

DAMAGED = r"partition \d of shuffle .*, of \S+/data\d\.sock: a block of \d+ bytes hashes to .*"
CORRUPT = rf"reduce of partition \d is made again: {DAMAGED}"
CORRUPT_HERE = rf"going on at a replica, as .*\.sock failed: {DAMAGED}"
CUT = r"reduce of partition \d is made again: cannot read .*\.blocks: .* too early"
FULL = r"map [34] \(rows, .* is made again: cannot spill .*: \[Errno 27\] File too large; make room"

DAMAGES = [
    #    who                 fault                    when      maps reduces failed
    Cell("data server", "corrupt in memory", "shuffle", 10, 9, 0, CORRUPT),
    Cell("data server", "corrupt in memory", "reduce", 10, 9, 0, CORRUPT),
    Cell("data server", "corrupt in memory", "reduce", 5, 8, 0, CORRUPT_HERE, TWICE),
    Cell("data server", "corrupt on disk", "reduce", 10, 9, 0, CORRUPT, SPILLING),
    Cell("data server", "truncate on disk", "reduce", 10, 9, 0, CUT, SPILLING),
    Cell("data server", "full disk", "shuffle", 10, 8, 0, FULL, SPILLING),
]


@pytest.mark.parametrize("cell", DAMAGES, ids=str)
def test_the_job_goes_on(cell: Cell, tmp_path: Path) -> None:
    check_goes_on(cell, DO[cell.fault], tmp_path)


def corrupt_in_memory(run: FaultyRun, victim: psutil.Process) -> None:
    assert faults.flip_in_memory(victim, faulty_job.bytes_in(6)) >= 1


def damage_on_disk(run: FaultyRun, damage: Callable[[Path, int], None]) -> None:
    """Do it where a row lies that is in one file only."""
    wanted, hits = faulty_job.bytes_in(6), 0
    for path in spill_files(run.temporary):
        at = path.read_bytes().find(wanted)
        if at >= 0:
            damage(path, at)
            hits += 1
    assert hits == 1


DO: dict[str, Callable[[FaultyRun, psutil.Process], None]] = {
    "corrupt in memory": corrupt_in_memory,
    "corrupt on disk": lambda run, victim: damage_on_disk(run, flip_byte),
    "truncate on disk": lambda run, victim: damage_on_disk(run, truncate_file),
    "full disk": full_disk,
}
