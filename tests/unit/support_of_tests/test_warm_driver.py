"""A driver that is forked carries the mark by which a test knows the processes of its job."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.commands.driver import drive, shared_warm_driver, write_job
from tests.support.commands.leftovers import nothing_left_over, processes_of

JOB = """
[job]
name = "marked"
[inputs.rows]
path = "in.csv"
map = "marking:look"
[output]
table = "out"
"""

MARKING = """
from pathlib import Path

import psutil

def look(rows):
    family = [psutil.Process(), *psutil.Process().parents()[:2]]
    marks = [process.environ().get("MRFLIGHT_TEST_RUN", "no mark") for process in family]
    Path(__file__).with_name("seen").write_text("\\n".join(marks))
    return rows
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, drivers with a mark start cold")
def test_the_processes_of_a_forked_driver_have_its_mark(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("k\n1\n")
    (tmp_path / "marking.py").write_text(MARKING)
    job = write_job(tmp_path, JOB)
    with nothing_left_over(tmp_path / "tmp") as environment:
        assert shared_warm_driver().takes({**os.environ, **environment})
        done = drive(job, environment=environment)
    assert done.code == 0, done.stderr
    mark = environment["MRFLIGHT_TEST_RUN"]
    worker, *others = (tmp_path / "seen").read_text().splitlines()
    assert worker == mark
    assert mark in others  # the driver, or its fork server; the warm process comes after it
    assert processes_of(mark) == []
