"""Tests of the order of a job's stages, and of mistakes in them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from mrflight.config.job_file import decode_job
from mrflight.config.spec import JobSpec
from mrflight.errors import ColumnNotFoundError, JobFileError
from mrflight.planner.stages import build_stages, result_stages, with_key_prefix
from tests.support.suite.messages import refused


def stage(*reads: str, **sections: Any) -> dict[str, Any]:
    """Return a stage that reads a file, or these stages."""
    inputs: dict[str, Any] = {name: {"stage": name, "key": ["k"]} for name in reads}
    return {"inputs": inputs or {"file": {"path": "in.csv", "key": ["k"]}}, **sections}


def job(*reads: str, stages: dict[str, Any], **sections: Any) -> JobSpec:
    return decode_job(
        {
            "job": {"name": "stages"},
            "output": {"table": "out"},
            "stages": stages,
            **stage(*reads),
            **sections,
        }
    )


def order(spec: JobSpec) -> list[str]:
    return [each.name for each in build_stages(spec)]


def test_a_job_without_stages_has_one_stage() -> None:
    (only,) = build_stages(job(stages={}))
    assert (only.name, only.section, only.reads) == ("", "", set())


def test_a_stage_runs_once_and_after_the_stages_that_it_reads() -> None:
    diamond = {"left": stage("root"), "root": stage(), "right": stage("root")}
    assert order(job("right", "left", stages=diamond)) == ["root", "right", "left", ""]


def test_a_sorted_result_takes_two_stages() -> None:
    reduce = {"group_by": ["k"], "sort_by": ["k desc"], "limit": 3}
    spec = job("first", stages={"first": stage(reduce=reduce)}, reduce=reduce)
    stages = {each.name: each for each in build_stages(spec)}
    assert list(stages) == ["first.rows", "first", "job.rows", ""]
    assert [each.section for each in stages.values()] == ["stages.first."] * 2 + [""] * 2
    assert [each.title for each in stages.values()] == ["first", "first sort_by", "", "sort_by"]
    assert stages["job.rows"].reads == {"first"}
    assert stages[""].reads == {"job.rows"}
    rows, sorted_rows = stages["job.rows"].spec.reduce, stages[""].spec.reduce
    assert rows is not None
    assert sorted_rows is not None
    assert (rows.group_by, rows.sort_by, rows.limit) == (["k"], [], None)
    assert (sorted_rows.group_by, sorted_rows.sort_by, sorted_rows.limit) == ([], ["k desc"], 3)


def test_sorting_rows_as_they_are_takes_one_stage() -> None:
    assert order(job(stages={}, reduce={"sort_by": ["k"]})) == [""]


def test_stages_have_the_replicas_and_the_compression_of_the_job() -> None:
    stages = {"a": stage(), "b": stage("a", shuffle={"compression": "zstd"})}
    spec = job("b", stages=stages, shuffle={"replicas": 2, "compression": "lz4"})
    found = {each.name: each.spec.shuffle for each in build_stages(spec)}
    assert (found["a"].replicas, found["a"].compression) == (2, "lz4")
    assert (found["b"].replicas, found["b"].compression) == (2, "zstd")


def test_only_the_last_stage_writes_the_output() -> None:
    spec = job("a", stages={"a": stage()}, output={"table": "out", "mode": "append"})
    assert [each.spec.output.mode for each in build_stages(spec)] == ["error", "append"]


@pytest.mark.parametrize(
    ("reads", "stages", "message"),
    [
        (("x",), {}, "inputs.x.stage: no stage 'x'; there are none, [stages.NAME]"),
        (("x",), {"y": stage()}, "inputs.x.stage: no stage 'x'; there are 'y', "),
        ((), {"y": stage()}, "stages.y: no input reads its result; set stage = 'y'"),
        (("a",), {"a": stage("a")}, "stages.a.inputs.a.stage: 'a' reads the result of this stage"),
        (
            ("a",),
            {"a": stage("b"), "b": stage("a")},
            "stages.b.inputs.a.stage: 'a' reads the result of this stage; ",
        ),
        (
            ("a",),
            {"a": stage(shuffle={"replicas": 2})},
            "stages.a.shuffle.replicas cannot differ between the stages of a job; set shuffle.rep",
        ),
        (
            ("a",),
            {"a": stage(shuffle={"memory": "1 GiB"})},
            "stages.a.shuffle.memory cannot differ between the stages of a job; set shuffle.memory",
        ),
        (("a b",), {"a b": stage()}, "stages.a b: a stage's name must be 1 to 64 letters, digits"),
    ],
)
def test_invalid_stages_are_refused(
    reads: tuple[str, ...], stages: dict[str, Any], message: str
) -> None:
    with pytest.raises(JobFileError, match=f"^{re.escape(message)}"):
        build_stages(job(*reads, stages=stages))


@pytest.mark.parametrize(
    ("sections", "names", "partitioner"),
    [
        ({}, [""], "hash"),
        ({"shuffle": {"partitioner": "round_robin"}}, [""], "in_order"),
        ({"shuffle": {"partitioner": "in_order"}}, [""], "in_order"),
        ({"shuffle": {"partitioner": "range"}}, ["", "job.result"], "in_order"),
        ({"reduce": {"distinct": True}}, ["", "job.result"], "in_order"),
        (
            {"reduce": {"distinct": True, "limit": 3}},
            ["job.rows", "", "job.result"],
            "in_order",
        ),
    ],
)
def test_the_last_shuffle_of_a_result_has_its_rows_in_order(
    sections: dict[str, Any], names: list[str], partitioner: str
) -> None:
    stages = result_stages(job(stages={}, **sections))
    assert [each.name for each in stages] == names
    assert stages[-1].title == ("result" if names[-1] else "")
    assert stages[-1].spec.shuffle.partitioner == partitioner
    assert stages[-1].spec.reduce is None


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({}, 'stages.a.inputs.x.path is missing; write path = "..." in '),
        (
            {"path": "x", "stage": "b"},
            "stages.a.inputs.x.stage and stages.a.inputs.x.path exclude each other",
        ),
        (
            {"path": "x", "map": "m:f", "sql": "select 1"},
            "stages.a.inputs.x.sql and stages.a.inputs.x.map exclude each other",
        ),
        (
            {"path": "x", "sql_table": "y"},
            "stages.a.inputs.x.sql_table names the rows in stages.a.inputs.x.sql, which is missing",
        ),
    ],
)
def test_an_input_is_a_path_or_a_stage(section: dict[str, Any], message: str) -> None:
    with pytest.raises(JobFileError, match=f"^{re.escape(message)}"):
        job("a", stages={"a": {"inputs": {"x": section}}})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("version", 0),
        ("timestamp", "2026-11-21T10:00:00Z"),
        ("format", "csv"),
        ("types", {"k": "string"}),
        ("columns", ["zz"]),
        ("csv", {"delimiter": ";"}),
    ],
)
def test_keys_for_files_are_refused_for_stages(key: str, value: Any) -> None:
    stages: dict[str, Any] = {"a": {"inputs": {"x": {"path": "x"}}}}
    with refused(JobFileError):
        job(inputs={"a": {"stage": "a", key: value}}, stages=stages)
    stages["b"] = {"inputs": {"a": {"stage": "a", key: value}}}
    with refused(JobFileError):
        job(inputs={"b": {"stage": "b"}}, stages=stages)


def test_a_stage_without_inputs_is_refused() -> None:
    with refused(JobFileError, "stages.a.inputs"):
        job("a", stages={"a": {"inputs": {}}})


def test_messages_have_the_key_of_their_stage() -> None:
    first, last = build_stages(job("a", stages={"a": stage()}))
    missing = "inputs.file.key: what inputs.file.columns reads has no column 'k'"
    with refused(ColumnNotFoundError, "stages.a.inputs.file.key") as raised, with_key_prefix(first):
        raise ColumnNotFoundError(missing)
    with pytest.raises(ColumnNotFoundError) as raised, with_key_prefix(last):
        raise ColumnNotFoundError(missing)
    assert str(raised.value) == missing
