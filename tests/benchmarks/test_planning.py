"""Benchmark of planning a job of 1,000 files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mrflight.planner.stage_plan import plan_stage
from mrflight.sources import open_source
from tests.support.jobs.plans import MEMORY, SPLIT_BYTES, WORKERS, job

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

FILES = 1_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of 1,000 csv files of two columns and one row."""
    folder = tmp_path_factory.mktemp("visits")
    for number in range(FILES):
        (folder / f"{number:04}.csv").write_text("url,weight\nhttps://site/1,2\n")
    return folder


def test_plan_many_files(benchmark: BenchmarkFixture, folder: Path) -> None:
    spec = job(inputs={"visits": {"path": "*.csv", "key": ["url"]}})

    def plan() -> int:
        source = open_source("visits", spec.inputs["visits"], folder, {}, SPLIT_BYTES)
        tasks = plan_stage(spec, [source], str(folder), WORKERS, MEMORY).map_tasks
        return sum(len(task.split.pieces) for task in tasks)

    assert benchmark.pedantic(plan, rounds=3, warmup_rounds=1) == FILES
