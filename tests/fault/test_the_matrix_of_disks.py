"""The fault matrix: blocks that are damaged, in memory and on disk, and disks that are full."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from mrflight.testing.failing_disk import flip_byte, spill_files, truncate_file
from tests.fault.test_the_matrix import TWICE, Cell, at_the_moment, check, hit
from tests.support import faults
from tests.support.faults import FaultyRun

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="prlimit, and writes to /proc")

SPILLING = ("shuffle.memory=1 MiB", "inputs.rows.map=functions:wide")
DAMAGED = r"partition \d of shuffle .*, of \S+/data\d\.sock: a block of \d+ bytes hashes to .*"
CORRUPT = rf"reduce of partition \d is made again: {DAMAGED}"
CORRUPT_HERE = rf"going on at a replica, as .*\.sock failed: {DAMAGED}"
ROOM_BYTES = 1_000
"""Of a file on a full disk: enough for what a process says, and for nothing that it stores."""

CUT = r"reduce of partition \d is made again: cannot read .*\.blocks: .* too early"
FULL = r"map [34] \(rows, .* is made again: cannot spill .*: \[Errno 27\] File too large; make room"

DAMAGES = [
    #    who                 fault                    when      maps reduces failed
    Cell("data server", "corrupt in memory", "shuffle", 10, 9, 1, CORRUPT),
    Cell("data server", "corrupt in memory", "reduce", 10, 9, 1, CORRUPT),
    Cell("data server", "corrupt in memory", "reduce", 5, 8, 0, CORRUPT_HERE, TWICE),
    Cell("data server", "corrupt on disk", "reduce", 10, 9, 1, CORRUPT, SPILLING),
    Cell("data server", "truncate on disk", "reduce", 10, 9, 1, CUT, SPILLING),
    Cell("data server", "full disk", "shuffle", 10, 8, 1, FULL, SPILLING),
]


@pytest.mark.parametrize("cell", DAMAGES, ids=str)
def test_the_job_goes_on(cell: Cell, tmp_path: Path) -> None:
    with at_the_moment(tmp_path, cell.when, *cell.options) as (run, victims):
        hit(run, cell.when, lambda: DO[cell.fault](run, victims[cell.who]))
        done = run.finish()
    check(cell, done, tmp_path)


def corrupt_in_memory(run: FaultyRun, victim: psutil.Process) -> None:
    assert faults.flip_in_memory(victim, faults.bytes_in(6)) >= 1


def corrupt_on_disk(run: FaultyRun, victim: psutil.Process) -> None:
    wanted, hits = faults.bytes_in(6), 0
    for path in spill_files(run.temporary):
        at = path.read_bytes().find(wanted)
        if at >= 0:
            flip_byte(path, at)
            hits += 1
    assert hits == 1


def truncate_on_disk(run: FaultyRun, victim: psutil.Process) -> None:
    wanted, hits = faults.bytes_in(6), 0
    for path in spill_files(run.temporary):
        at = path.read_bytes().find(wanted)
        if at >= 0:
            truncate_file(path, at)
            hits += 1
    assert hits == 1


def full_disk(run: FaultyRun, victim: psutil.Process) -> None:
    """For good: see `mrflight.testing.failing_disk.full_disk`."""
    _, hard = resource.prlimit(victim.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(victim.pid, resource.RLIMIT_FSIZE, (ROOM_BYTES, hard))


DO: dict[str, Callable[[FaultyRun, psutil.Process], None]] = {
    "corrupt in memory": corrupt_in_memory,
    "corrupt on disk": corrupt_on_disk,
    "truncate on disk": truncate_on_disk,
    "full disk": full_disk,
}
