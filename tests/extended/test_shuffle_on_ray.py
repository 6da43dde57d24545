"""Programs on Ray use a shuffle: when Ray retries their tasks, every row is there once."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands.experiments import PROGRAM_TIMEOUT_S
from tests.support.faults.faulty_run import await_that
from tests.support.ray.head import ROOT, RayHead
from tests.support.ray.programs import MAPS, RESULT, ROWS

# A program takes 4 to 8 s with two free cores, and up to two minutes while five tests share them,
# because Ray starts a dozen processes that each load Arrow.

TITLE = "ray::MrflightShuffleServer"
EXACT = {"exact": True, "keys": 97, "places": 1}


@pytest.fixture
def program(ray_head: RayHead, tmp_path: Path) -> Any:
    """Runs one of `tests.support.ray.programs` to its end, after which nothing of it is left."""

    def run(name: str) -> dict[str, Any]:
        _output("-m", "tests.support.ray.programs", name, ray_head.address, str(tmp_path))
        await_that(lambda: not ray_head.workers(TITLE), "the end of the servers")
        result: dict[str, Any] = json.loads((tmp_path / RESULT).read_text())
        return result

    return run


@pytest.mark.soak
def test_tasks_that_ray_makes_again_change_nothing(program: Any, tmp_path: Path) -> None:
    assert program("retries") == {**EXACT, "maps": MAPS, "rows": MAPS * ROWS}
    tries = [len((tmp_path / f"tries-{number}").read_text()) for number in range(MAPS)]
    assert tries == [2, 2, 1, 2]


def test_servers_that_are_killed_are_started_again(program: Any) -> None:
    assert program("losses") == {**EXACT, "again": list(range(MAPS)), "left": []}


def test_datasets_at_both_ends(program: Any) -> None:
    found = program("datasets")
    assert found == {
        "exact": True,
        "columns": ["k", "row"],
        "empty": True,
        "part": True,
        "twice": [2 * ROWS, True],
        "early": [
            "MapOutputMissingError: shuffle 'datasets': no map is committed, so that it has no "
            "rows yet",
            0,
        ],
        "missing": "1000 maps are committed, and the rows of the others would be missing; read it "
        "once all are",
        "wrong": "JobError: partitions [60]: the shuffle has those from 0 to 59",
    }


def test_a_task_that_writes_a_dataset_and_is_made_again(program: Any) -> None:
    assert program("datasets_again") == {
        **EXACT,
        "maps": [3, 4, 5, 6],
        "tries": "xx",
        "refused": True,
        "rows": MAPS * ROWS,
        "taken": True,
    }


def test_what_is_wrong_is_said(program: Any) -> None:
    found = program("mistakes")
    assert re.match("JobError: .*much", found["memory"])
    assert found["servers"] == "JobError: data_servers must be at least 1, not 0"
    assert re.match("JobError: .*soon", found["timeout"])
    assert "call ray.init()" in found["ray"]


def test_the_example_counts_all_visits(ray_head: RayHead) -> None:
    environment = {**os.environ, "RAY_ADDRESS": ray_head.address}
    printed = _output("examples/ray_shuffle/shuffle.py", environment=environment)
    assert re.search("^2,000,000 visits of 1,000 sites$", printed, re.MULTILINE)
    await_that(lambda: not ray_head.workers(TITLE), "the end of the servers")


def _output(*arguments: str, environment: dict[str, str] | None = None) -> str:
    ended = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    return ended.stdout
