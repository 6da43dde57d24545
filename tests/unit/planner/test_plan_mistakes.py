"""Mistakes in a job are found before it runs, and are reported with their key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mrflight.errors import (
    ColumnNotFoundError,
    JobError,
    JobFileError,
    KeyTypeError,
    UserFunctionError,
)
from mrflight.ids import MAX_PARTITIONS
from tests.support.jobs.plans import Plan, job
from tests.support.suite.messages import refused


@pytest.mark.parametrize(
    ("sections", "key"),
    [
        (
            {"shuffle": {"partitions": 0}},
            "shuffle.partitions",
        ),
        (
            {"shuffle": {"partitions": -3}},
            "shuffle.partitions",
        ),
        (
            {"shuffle": {"partitions": MAX_PARTITIONS + 1}},
            "shuffle.partitions",
        ),
        (
            {"reduce": {"function": "m:f", "group_by": ["url"]}},
            "reduce.function",
        ),
        (
            {"reduce": {"function": "m:f", "aggregate": {"n": "count(*)"}}},
            "reduce.function",
        ),
        (
            {"reduce": {"aggregate": {"n": "count(*)"}}},
            "inputs.visits.key",
        ),
        (
            {
                "reduce": {"aggregate": {"n": "count(*)"}},
                "shuffle": {"partitioner": "range"},
            },
            "shuffle.partitioner",
        ),
        (
            {"reduce": {"group_by": ["url"], "aggregate": {"url": "count(*)"}}},
            "reduce.aggregate.url",
        ),
        (
            {"reduce": {"group_by": ["url"], "aggregate": {"n": "mode(weight)"}}},
            "reduce.aggregate.n",
        ),
        (
            {"inputs": {"visits": {"path": "visits.csv"}}, "shuffle": {"partitioner": "hash"}},
            "inputs.visits.key",
        ),
        (
            {"inputs": {"visits": {"path": "visits.csv"}}, "shuffle": {"partitioner": "range"}},
            "inputs.visits.key",
        ),
        (
            {"inputs": {"visits": {"path": "visits.csv", "key": ["url", "url"]}}},
            "inputs.visits.key",
        ),
        (
            {"shuffle": {"partitioner": "round_robin"}, "reduce": {"group_by": ["url"]}},
            "shuffle.partitioner",
        ),
        (
            {"reduce": {"group_by": ["weight"]}},
            "inputs.visits.key",
        ),
        (
            {"shuffle": {"partitioner": "hsah"}},
            "shuffle.partitioner",
        ),
    ],
)
def test_each_mistake_is_reported_with_its_key(
    plan: Plan, sections: dict[str, Any], key: str
) -> None:
    spec = job(**sections)
    with refused(JobFileError, key):
        plan(spec)


@pytest.mark.parametrize(
    ("sections", "key"),
    [
        (
            {"inputs": {"visits": {"path": "visits.csv", "map": "weigh", "key": ["url"]}}},
            "inputs.visits.map",
        ),
        ({"reduce": {"function": "m.:f"}}, "reduce.function"),
        (
            {"shuffle": {"partitioner": "m:f:g"}},
            "shuffle.partitioner",
        ),
    ],
)
def test_an_invalid_function_is_reported_with_its_key(
    plan: Plan, sections: dict[str, Any], key: str
) -> None:
    spec = job(**sections)
    with refused(UserFunctionError, key):
        plan(spec)


def test_columns_of_unmapped_inputs_are_checked(plan: Plan) -> None:
    inputs = {"visits": {"path": "visits.csv", "key": ["ulr"]}}
    with pytest.raises(ColumnNotFoundError, match="'ulr'"):
        plan(job(inputs=inputs))
    with refused(ColumnNotFoundError, "reduce.aggregate.n"):
        plan(job(reduce={"group_by": ["url"], "aggregate": {"n": "sum(wait)"}}))


def test_a_missing_column_is_reported_with_the_key_that_selects_columns(plan: Plan) -> None:
    visits = {"path": "visits.csv", "key": ["url"], "columns": ["url"]}
    reduce = {"group_by": ["url"], "aggregate": {"n": "sum(weight)"}}
    with pytest.raises(ColumnNotFoundError) as raised:
        plan(job(inputs={"visits": visits}, reduce=reduce))
    reason = "what inputs.visits.columns reads has no column 'weight'; it has 'url'"
    assert str(raised.value) == f"reduce.aggregate.n: {reason}"
    with pytest.raises(ColumnNotFoundError) as raised:
        plan(job(inputs={"visits": {**visits, "key": ["weight"]}}))
    assert str(raised.value) == f"inputs.visits.key: {reason}"
    with pytest.raises(ColumnNotFoundError) as raised:
        plan(job(reduce={"group_by": ["url"], "aggregate": {"n": "sum(wait)"}}))
    reason = "inputs.visits has no column 'wait'; did you mean 'weight'? It has 'url', 'weight'"
    assert str(raised.value) == f"reduce.aggregate.n: {reason}"


def test_columns_of_mapped_inputs_are_not_checked(plan: Plan) -> None:
    inputs = {"visits": {"path": "visits.csv", "map": "m:f", "key": ["made"]}}
    assert plan(job(inputs=inputs)).map_tasks[0].partitioner.key == ("made",)


def test_a_key_without_a_hash_is_refused(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "nested.json").write_text('{"tags": ["a"]}\n')
    inputs = {"nested": {"path": "nested.json", "key": ["tags"]}}
    with pytest.raises(KeyTypeError, match="tags"):
        plan(job(inputs=inputs))


@pytest.mark.parametrize("group_by", [["url", "url"], ["url", "weight", "weight"]])
def test_a_group_column_that_is_named_twice_is_refused(plan: Plan, group_by: list[str]) -> None:
    spec = job(reduce={"group_by": group_by})
    with refused(JobFileError, "reduce.group_by"):
        plan(spec)


@pytest.mark.parametrize("partitioner", ["hash", "range"])
def test_a_job_without_inputs_is_refused(partitioner: str) -> None:
    with pytest.raises(JobFileError, match=r"^inputs"):
        job(inputs={}, shuffle={"partitioner": partitioner})


@pytest.mark.parametrize(
    "sections",
    [
        {"shuffle": {"replicas": 0}},
        {"cluster": {"data_servers": -1}},
        {"cluster": {"data_servers": 1}, "shuffle": {"replicas": 2}},
    ],
    ids=str,
)
def test_impossible_numbers_of_servers_and_replicas_are_refused(
    plan: Plan, sections: dict[str, Any]
) -> None:
    with pytest.raises(JobError):
        plan(job(**sections))
