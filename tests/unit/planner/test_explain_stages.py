"""What ``mrflight explain`` says of one stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from mrflight.ids import MAX_PARTITIONS
from mrflight.planner.explain_stage import StageWords
from mrflight.planner.partition_count import PartitionCount, Reason, count_partitions
from mrflight.planner.stages import Stage
from mrflight.sources import open_source
from tests.support.plans import MEMORY, Plan, job, planner


@pytest.mark.parametrize(
    ("sections", "line"),
    [
        (
            {"shuffle": {"partitioner": "range"}},
            "rows go      by ranges of url, cut after a sample",
        ),
        ({"shuffle": {"partitioner": "round_robin"}}, "rows go      to each partition in turn"),
        ({"shuffle": {"partitioner": "a:b"}}, "rows go      where a:b puts them, by url"),
        ({}, "combined     no: every row is in the result"),
        ({"reduce": {"function": "a:b"}}, "combined     no: a:b sees all rows"),
        ({"reduce": {"sql": "select url from visits"}}, "combined     no: sql sees all rows"),
        (
            {"reduce": {"group_by": ["url"]}, "shuffle": {"partitioner": "a:b"}},
            "combined     no: the partitioner a:b may look at any column",
        ),
        ({"reduce": {"function": "a:b"}}, "makes        what a:b makes of its rows"),
        ({"shuffle": {"partitioner": "range"}}, "makes        its rows, sorted by url"),
        (
            {"output": {"table": "out", "mode": "merge", "keys": ["url"]}},
            "makes        its rows, one row for each url",
        ),
    ],
)
def test_what_a_stage_does(tmp_path: Path, sections: dict[str, Any], line: str) -> None:
    assert any(each.startswith(line) for each in words_of(planner(tmp_path), tmp_path, sections))


def test_one_row_of_all_rows(tmp_path: Path) -> None:
    sections = {"inputs": {"visits": {"path": "visits.csv"}}}
    reduce = {"aggregate": {"n": "count(*)", "w": "count_distinct(weight)"}}
    words = words_of(planner(tmp_path), tmp_path, {**sections, "reduce": reduce})
    assert "rows go      to one partition" in words
    assert "partitions   1, as one row is made of all rows" in words
    assert "makes        one row of all rows: n = count(*), w = count_distinct(weight)" in words
    (combined,) = (each for each in words if each.startswith("combined"))
    assert combined.endswith("come in several maps; only weight of each row are sent")


def words_of(plan: Plan, folder: Path, sections: dict[str, Any]) -> list[str]:
    spec = job(**sections)
    source = open_source("visits", spec.inputs["visits"], folder, {}, 100)
    words = StageWords(Stage("", "", spec), plan(spec), {"visits": source})
    return [f"{label.strip():<12} {text}" for label, text in words.lines()]


MIB = 2**20


@pytest.mark.parametrize(
    ("rows_bytes", "workers", "why"),
    [
        (MIB, 4, "1, as about 1.0 MiB of rows fit in one of 64.0 MiB"),
        (640 * MIB, 4, "10, as about 640.0 MiB of rows fill 10 of 64.0 MiB"),
        (65 * MIB, 4, "4, one for each worker: about 65.0 MiB of rows fill 2 of 64.0 MiB"),
        (
            2**50,
            4,
            "8,192, as a map has memory for a block of 16.0 KiB for each of no more: about 1.0 PiB "
            "of rows fill 16,777,216 of 64.0 MiB",
        ),
        (2**50, MAX_PARTITIONS + 1, "100,000, the most that a shuffle has: about 1.0 PiB of rows"),
    ],
)
def test_why_so_many_partitions(tmp_path: Path, rows_bytes: int, workers: int, why: str) -> None:
    plan = planner(tmp_path)
    spec = job()
    counted = count_partitions(spec, rows_bytes, workers, MEMORY)
    words = StageWords(Stage("", "", spec), replace(plan(spec), counted=counted), {})
    assert f"{counted.number:,}, {words.why_so_many()}".startswith(why)


@pytest.mark.parametrize("reason", get_args(Reason))
def test_every_reason_has_words(tmp_path: Path, reason: Reason) -> None:
    spec = job()
    counted = PartitionCount(3, reason, 130 * MIB, 64 * MIB)
    plan = replace(planner(tmp_path)(spec), counted=counted)
    words = StageWords(Stage("", "", spec), plan, {}).why_so_many()
    assert words.startswith(("as ", "one for each worker: ", "the most that a shuffle has: "))


@pytest.mark.parametrize(
    ("sections", "columns"),
    [
        ({"reduce": {"group_by": ["url"]}}, ["columns      url"]),
        ({"reduce": {"aggregate": {"w": "sum(weight)"}}}, ["columns      weight"]),
        ({"reduce": {"aggregate": {"n": "count(*)"}}}, ["columns      url"]),  # some column
        ({}, []),
    ],
)
def test_columns_are_told_where_some_are_not_needed(
    tmp_path: Path, sections: dict[str, Any], columns: list[str]
) -> None:
    pq.write_table(pa.table({"url": ["a"], "weight": [1]}), tmp_path / "visits.parquet")
    key = [] if "aggregate" in sections.get("reduce", {}) else ["url"]
    sections = {**sections, "inputs": {"visits": {"path": "visits.parquet", "key": key}}}
    words = words_of(planner(tmp_path), tmp_path, sections)
    assert [each for each in words if each.startswith("columns")] == columns
