"""Tests of what a merge requires from the sections of a job."""

from __future__ import annotations

from typing import Any

import pytest

from mrflight.config.sort_key import ascending
from mrflight.errors import ColumnNotFoundError, JobFileError
from tests.support.jobs.plans import Plan, job
from tests.support.suite.messages import refused

MERGE = {"table": "out", "mode": "merge", "keys": ["url"]}
INPUT = {"path": "visits.csv", "key": ["url"]}


def test_inputs_without_a_key_use_the_keys_of_the_merge(plan: Plan) -> None:
    planned = plan(job(inputs={"visits": {"path": "visits.csv"}}, output=MERGE))
    assert planned.map_tasks[0].partitioner.key == ("url",)
    assert planned.reduce_spec.unique is not None
    # If it kept rows, slices of a skewed partition could divide the rows of a key.
    assert not planned.reduce_spec.keeps_rows


def test_a_range_keeps_the_rows_of_a_key_together(plan: Plan) -> None:
    planned = plan(job(shuffle={"partitioner": "range"}, output=MERGE))
    assert planned.reduce_spec.sort_by == ascending(["url"])
    assert not planned.reduce_spec.sorts_rows


@pytest.mark.parametrize(
    ("sections", "key"),
    [
        ({"output": {**MERGE, "keys": []}}, "output.keys"),
        ({"output": {**MERGE, "keys": ["url", "url"]}}, "output.keys"),
        ({"output": {**MERGE, "order_by": "url"}}, "output.order_by"),
        ({"output": {**MERGE, "delete_when": " "}}, "output.delete_when"),
        (
            {"output": {**MERGE, "format": "csv"}},
            "output.mode",
        ),
        (
            {"output": {"table": "out", "keys": ["url"]}},
            "output.keys",
        ),
        (
            {"output": {"table": "out", "mode": "append", "order_by": "url"}},
            "output.order_by",
        ),
        (
            {"output": {"table": "out", "mode": "overwrite", "delete_when": "true"}},
            "output.delete_when",
        ),
        (
            {"shuffle": {"partitioner": "round_robin"}, "output": MERGE},
            "shuffle.partitioner",
        ),
        (
            {"output": {**MERGE, "keys": ["weight"]}},
            "inputs.visits.key",
        ),
        (
            {
                "inputs": {"visits": INPUT, "more": {"path": "more.csv", "key": ["weight"]}},
                "output": {**MERGE, "keys": ["url", "weight"]},
            },
            "inputs.more.key",
        ),
        (
            {
                "shuffle": {"partitioner": "range"},
                "reduce": {"function": "m:f"},
                "output": MERGE,
            },
            "shuffle.partitioner",
        ),
    ],
)
def test_each_mistake_is_reported_with_its_key(
    plan: Plan, sections: dict[str, Any], key: str
) -> None:
    with refused(JobFileError, key):
        plan(job(**sections))


def test_columns_that_are_missing_in_the_result_are_refused(plan: Plan) -> None:
    without_key = {"visits": {"path": "visits.csv"}}
    with refused(ColumnNotFoundError, "output.keys"):
        plan(job(inputs=without_key, output={**MERGE, "keys": ["id"]}))
    with refused(ColumnNotFoundError, "output.order_by"):
        plan(job(output={**MERGE, "order_by": "at"}))
    groups = {"group_by": ["url"], "aggregate": {"n": "count(*)"}}
    with refused(ColumnNotFoundError, "output.order_by"):
        plan(job(reduce=groups, output={**MERGE, "order_by": "weight"}))
