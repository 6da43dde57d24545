"""Cells of the fault matrix for a job whose workers and servers are actors of Ray.

The others run there by ``make test-on-ray``, with the tests of tests/support/ray_files.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fault.test_matrix import AGAIN, RESTARTED, SILENT
from tests.support.fault_matrix import KILLED, Cell, check_goes_on

CELLS = [
    #    who                 fault    when       maps reduces failed
    Cell("worker", "kill", "shuffle", 6, 8, 1, KILLED),
    Cell("data server", "kill", "map", 10, 8, 0, AGAIN),
    Cell("metadata server", "kill", "reduce", 5, 8, 0, RESTARTED),
    Cell("metadata server", "stop", "map", 5, 8, 0, SILENT),
]


@pytest.mark.parametrize("cell", CELLS, ids=str)
@pytest.mark.usefixtures("on_ray")
def test_the_job_goes_on(cell: Cell, tmp_path: Path) -> None:
    check_goes_on(cell, tmp_path)
