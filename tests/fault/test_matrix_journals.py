"""The fault matrix: a metadata server's journal is on a full disk, or damaged when it is read."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from mrflight.result import Attempts
from tests.support.faults.deeds import DO
from tests.support.faults.matrix import (
    Cell,
    at_the_moment,
    check_failed,
    check_fails,
    check_goes_on,
    options_of,
)
from tests.support.faults.stopped_driver import Plan

pytestmark = [
    pytest.mark.runs_on_ray,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="prlimit"),
]

RESTARTED = "the metadata server was killed by SIGKILL; it is started again"
FORGOTTEN = "all maps and reduces run again: .* has forgotten 1 of 5 map tasks that were done"
NOT_AT_EPOCH = r"all maps and reduces run again: a ticket is of epoch 5, and shuffle \S+ is at 4: "

NO_ROOM = r"the journal \S+/metadata\.journal cannot be written: .*; it needs room .*"
IN_A_MAP = NO_ROOM + r"\n  in map [34] \(rows"
REFUSED = (
    r"the journal \S+/metadata\.journal is damaged: its write-ahead log has a wrong checksum; "
    r"(.*\n)*.*it is not replaced: the limit of 8 restarts is reached\n(.*\n)*mrflight: "
)
GONE = "cannot be reached"


# Until the last of the servers that take each other's place has ended.
PATIENT = ("cluster.reconnect_timeout=1 h",)

ALL_AGAIN = Attempts(10, 16, 1)
IN_THE_REDUCE = Attempts(5, 8, 0)
NO_REDUCE = Attempts(5, 0, 1)

GOES_ON = [
    # Nothing happens any more that it would have to keep.
    Cell("metadata server", "full disk", "reduce"),
    Cell("metadata server", "full disk", "commit"),
    # A record that is half written was never confirmed, whatever the job does.
    Cell("metadata server", "tear journal", "shuffle", {}, RESTARTED),
    Cell("metadata server", "tear journal", "commit"),
    # The last record looks as if it had not been finished, and is of a map that was done.
    Cell("metadata server", "cut journal", "map", {"map again": 5}, FORGOTTEN),
    Cell("metadata server", "cut journal", "reduce", ALL_AGAIN, NOT_AT_EPOCH),
    Cell("metadata server", "cut journal", "commit"),
    Cell("metadata server", "corrupt journal", "commit"),
]

FAILS = [
    Cell("metadata server", "full disk", "map", NO_REDUCE, IN_A_MAP),
    Cell("metadata server", "full disk", "shuffle", NO_REDUCE, IN_A_MAP),
]
REFUSES = [
    Cell(
        "metadata server",
        "corrupt journal",
        "map",
        Attempts(5, 0, 0),
        GONE,
        PATIENT,
    ),
    Cell("metadata server", "corrupt journal", "reduce", IN_THE_REDUCE, GONE, PATIENT),
]


@pytest.mark.parametrize("cell", GOES_ON, ids=str)
def test_the_job_goes_on(cell: Cell, tmp_path: Path) -> None:
    check_goes_on(cell, tmp_path)


@pytest.mark.parametrize("cell", FAILS, ids=str)
def test_the_job_fails_and_leaves_the_table_alone(cell: Cell, tmp_path: Path) -> None:
    check_fails(cell, tmp_path)


@pytest.mark.parametrize("cell", REFUSES, ids=str)
def test_the_job_fails_when_no_server_starts_with_the_journal(cell: Cell, tmp_path: Path) -> None:
    """Its tasks stay where they are: or one of them could notice before the driver does."""
    later = tmp_path / "later"
    plan = Plan(later_once=str(later))
    with at_the_moment(tmp_path, cell.when, *options_of(cell), plan=plan) as (run, victims):
        DO[cell.fault](run, victims[cell.who])
        run.has_said("the limit of 8 restarts is reached")
        later.touch()
        done = run.finish()
    assert re.search(REFUSED, done.stderr), done.stderr
    check_failed(cell, done, tmp_path)
