"""The pages "Coming from ...": twenty tasks each give the rows that the other library gives."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.services.java import QUICK_START
from tests.support.jobs import first_hour
from tests.support.jobs.first_hour import Task, answer_of, comparable, tasks
from tests.support.suite.waiting import hang_s

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
IMPORTS = "import pandas as pd\nimport polars as pl\nimport pyarrow as pa\n"
"""What a program has imported that hands over its frames."""
SMALL_SPARK = {
    "JAVA_TOOL_OPTIONS": " ".join(QUICK_START),
    "PYSPARK_SUBMIT_ARGS": "--master local[1] --conf spark.ui.enabled=false "
    "--conf spark.sql.shuffle.partitions=1 pyspark-shell",
}
"""Spark runs each shuffle in one task. Its default are 200 tasks, which a few rows do not need."""


def cases(*libraries: str) -> list[Any]:
    return [
        pytest.param(library, task, id=f"{library}: {task.title}")
        for library in libraries
        for task in tasks(library)[1]
    ]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the data of the tasks."""
    first_hour.write_data(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("library", ["polars", "duckdb", "spark"])
def test_a_page_has_twenty_tasks(library: str) -> None:
    assert len({task.title for task in tasks(library)[1]}) == 20


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("library", "task"), cases("polars", "duckdb"))
def test_a_task_gives_the_same_rows(library: str, task: Task) -> None:
    beginning = tasks(library)[0]
    theirs = answer_of(IMPORTS + beginning.theirs, task.theirs)
    ours = answer_of(IMPORTS + beginning.ours, task.ours)
    assert theirs
    assert comparable(task, ours) == comparable(task, theirs)


@pytest.fixture(scope="module")
def answers_of_spark(needs_spark: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the rows that PySpark gives for each task, in one session."""
    folder = tmp_path_factory.mktemp("spark")
    first_hour.write_data(folder)
    program = [needs_spark, "-m", "tests.support.jobs.spark_answers", folder / "answers.json"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(needs_spark)}
    environment |= SMALL_SPARK
    subprocess.run(program, cwd=folder, env=environment, check=True, timeout=hang_s())
    answers: dict[str, Any] = json.loads((folder / "answers.json").read_text())
    return answers


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("library", "task"), cases("spark"))
def test_a_task_gives_the_same_rows_as_spark(
    library: str, task: Task, answers_of_spark: dict[str, Any]
) -> None:
    ours = answer_of(IMPORTS + tasks(library)[0].ours, task.ours)
    theirs = answers_of_spark[task.title]
    assert theirs
    assert comparable(task, ours) == comparable(task, theirs)
