"""Tests of what ``mrflight explain`` prints about one stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mrflight.ids import MAX_PARTITIONS
from mrflight.planner.explain_stage import StageExplanation, explain_count
from mrflight.planner.partition_count import PartitionCount, Reason, count_partitions
from mrflight.planner.stages import Stage
from mrflight.sources import open_source
from tests.support.jobs.plans import MEMORY, Plan, job, planner


@pytest.mark.parametrize(
    ("sections", "line"),
    [
        (
            {"shuffle": {"partitioner": "range"}},
            "shuffle      by range of url (",
        ),
        ({"shuffle": {"partitioner": "round_robin"}}, "shuffle      by round robin"),
        ({"shuffle": {"partitioner": "a:b"}}, "shuffle      by a:b of url"),
        ({}, "combine      no (every row is in the result)"),
        ({"reduce": {"function": "a:b"}}, "combine      no (a:b sees all rows)"),
        ({"reduce": {"sql": "select url from visits"}}, "combine      no (sql sees all rows)"),
        (
            {"reduce": {"group_by": ["url"]}, "shuffle": {"partitioner": "a:b"}},
            "combine      no (partitioner a:b may use any column)",
        ),
        ({"reduce": {"function": "a:b"}}, "reduce       function a:b"),
        ({"shuffle": {"partitioner": "range"}}, "reduce       rows as they are, sorted by url"),
        (
            {"output": {"table": "out", "mode": "merge", "keys": ["url"]}},
            "reduce       rows as they are, one row for each url",
        ),
    ],
)
def test_the_parts_of_a_stage_are_explained(
    tmp_path: Path, sections: dict[str, Any], line: str
) -> None:
    assert any(each.startswith(line) for each in lines_of(planner(tmp_path), tmp_path, sections))


def test_an_aggregate_of_all_rows_is_explained(tmp_path: Path) -> None:
    sections = {"inputs": {"visits": {"path": "visits.csv"}}}
    reduce = {"aggregate": {"n": "count(*)", "w": "count_distinct(weight)"}}
    lines = lines_of(planner(tmp_path), tmp_path, {**sections, "reduce": reduce})
    assert "shuffle      to one partition" in lines
    assert "partitions   1 (one row is made of all rows)" in lines
    assert "reduce       aggregate all rows: n = count(*), w = count_distinct(weight)" in lines
    (combined,) = (each for each in lines if each.startswith("combine"))
    assert combined.endswith("may come from several maps); columns sent: weight")


def lines_of(plan: Plan, folder: Path, sections: dict[str, Any]) -> list[str]:
    spec = job(**sections)
    source = open_source("visits", spec.inputs["visits"], folder, {}, 100)
    explanation = StageExplanation(Stage("", "", spec), plan(spec), {"visits": source}, {})
    return [f"{label.strip():<12} {text}" for label, text in explanation.lines()]


MIB = 2**20


@pytest.mark.parametrize(
    ("rows_bytes", "workers", "start"),
    [
        (MIB, 4, "by size: about 1.0 MiB of rows, up to 64.0 MiB each"),
        (640 * MIB, 4, "by size: about 640.0 MiB of rows, up to 64.0 MiB each"),
        (65 * MIB, 4, "one for each worker: about 65.0 MiB of rows, up to 64.0 MiB each"),
        (
            2**50,
            4,
            "a map has memory for no more blocks of 16.0 KiB: about 1.0 PiB of rows, up to ",
        ),
        (2**50, MAX_PARTITIONS + 1, "the most that a shuffle can have: about 1.0 PiB of rows"),
    ],
)
def test_the_number_of_partitions_is_explained(rows_bytes: int, workers: int, start: str) -> None:
    assert explain_count(count_partitions(job(), rows_bytes, workers, MEMORY)).startswith(start)


@pytest.mark.parametrize("reason", get_args(Reason))
def test_every_reason_is_explained(reason: Reason) -> None:
    assert explain_count(PartitionCount(3, reason, 130 * MIB, 64 * MIB))


@pytest.mark.parametrize(
    ("sections", "columns"),
    [
        ({"reduce": {"group_by": ["url"]}}, ["columns      url"]),
        ({"reduce": {"aggregate": {"w": "sum(weight)"}}}, ["columns      weight"]),
        ({"reduce": {"aggregate": {"n": "count(*)"}}}, ["columns      url"]),  # to count rows
        ({}, []),
    ],
)
def test_columns_are_listed_if_some_are_not_read(
    tmp_path: Path, sections: dict[str, Any], columns: list[str]
) -> None:
    pq.write_table(pa.table({"url": ["a"], "weight": [1]}), tmp_path / "visits.parquet")
    key = [] if "aggregate" in sections.get("reduce", {}) else ["url"]
    sections = {**sections, "inputs": {"visits": {"path": "visits.parquet", "key": key}}}
    lines = lines_of(planner(tmp_path), tmp_path, sections)
    assert [each for each in lines if each.startswith("columns")] == columns
