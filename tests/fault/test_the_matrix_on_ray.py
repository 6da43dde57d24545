"""Cells of the fault matrix for a job whose workers and servers are actors of Ray.

Four of them, or all with ``--all-on-ray``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.fault import test_the_matrix as local
from tests.support.fault_matrix import Cell, check_goes_on
from tests.support.ray_head import RayHead
from tests.support.ray_run import all_gone, on_ray

KILLED = (
    r"(map 3 \(rows, .*|reduce of partition \d): attempt 1 of 4 failed and is made again: a "
    "worker on Ray gave no answer: it was lost by Ray: its process was killed or crashed"
)
AGAIN = r"[35] of 5 map tasks send again what was lost with \S+:\d+\n"
RESTARTED = (
    r"the metadata server ended \(it was lost by Ray: its process was killed or crashed\); "
    "it is started again"
)
SILENT = "the metadata server has not answered for 2 s and is ended"
ALONE = ("job.speculation=false", "cluster.data_servers=2")
TWO = ("cluster.data_servers=2",)

CELLS = [
    #    who                 fault    when       maps reduces failed
    Cell("worker", "kill", "shuffle", 6, 8, 1, KILLED, TWO),
    Cell("data server", "kill", "map", 10, 8, 0, AGAIN, TWO),
    Cell("metadata server", "kill", "reduce", 5, 8, 0, RESTARTED, ALONE),
    Cell("metadata server", "stop", "map", 5, 8, 0, SILENT, ALONE),
]


IN_OTHER_WORDS = {
    local.KILLED: KILLED,
    local.AGAIN: AGAIN,
    local.RESTARTED: RESTARTED,
    # What workers say is in Ray's logs.
    "going on without": "",
    "going on at a replica": "",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    is_all = metafunc.config.getoption("--all-on-ray")
    cells = [as_on_ray(cell) for cell in local.CELLS] if is_all else CELLS
    metafunc.parametrize("cell", cells, ids=str)


def as_on_ray(cell: Cell) -> Cell:
    """A cell of local processes in Ray's words.

    Servers take longer to start there: a map that waits for another one may get a twin.
    """
    options = cell.options
    if local.SINGLE[0] not in options:
        options += TWO
    if cell.who == "metadata server" or (cell.who, cell.fault) == ("data server", "stop"):
        options += local.ALONE
    return replace(cell, says=IN_OTHER_WORDS.get(cell.says, cell.says), options=options)


def test_the_job_goes_on(cell: Cell, ray_head: RayHead, tmp_path: Path) -> None:
    there = replace(cell, options=(*ray_head.options, *cell.options))
    check_goes_on(there, tmp_path, partial(on_ray, head=ray_head))
    all_gone(ray_head)
