"""Tests of what a merge requires from the sections of a job."""

from __future__ import annotations

from typing import Any

import pytest

from mrflight.config.sort_key import ascending
from mrflight.errors import ColumnNotFoundError, JobFileError
from tests.support.jobs.plans import Plan, job

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
    ("sections", "start"),
    [
        ({"output": {**MERGE, "keys": []}}, "output.keys: a merge needs the columns that identify"),
        ({"output": {**MERGE, "keys": ["url", "url"]}}, "output.keys: ['url', 'url'] names a"),
        ({"output": {**MERGE, "order_by": "url"}}, "output.order_by: 'url' is one of output.keys"),
        ({"output": {**MERGE, "delete_when": " "}}, "output.delete_when must not be empty; "),
        (
            {"output": {**MERGE, "format": "csv"}},
            "output.mode: cannot merge into a folder of csv files",
        ),
        (
            {"output": {"table": "out", "keys": ["url"]}},
            "output.keys only applies to mode = 'merge', and the mode is 'error'; ",
        ),
        (
            {"output": {"table": "out", "mode": "append", "order_by": "url"}},
            "output.order_by only applies to mode = 'merge', and the mode is 'append'; ",
        ),
        (
            {"output": {"table": "out", "mode": "overwrite", "delete_when": "true"}},
            "output.delete_when only applies to mode = 'merge', and the mode is 'overwrite'; ",
        ),
        (
            {"shuffle": {"partitioner": "round_robin"}, "output": MERGE},
            "shuffle.partitioner: round_robin may send rows with equal output.keys to different ",
        ),
        (
            {"output": {**MERGE, "keys": ["weight"]}},
            "inputs.visits.key: ['url'] must be among output.keys, ['weight']; ",
        ),
        (
            {
                "inputs": {"visits": INPUT, "more": {"path": "more.csv", "key": ["weight"]}},
                "output": {**MERGE, "keys": ["url", "weight"]},
            },
            "inputs.more.key: ['weight'] must be the key of inputs.visits, ['url']; ",
        ),
        (
            {
                "shuffle": {"partitioner": "range"},
                "reduce": {"function": "m:f"},
                "output": MERGE,
            },
            "shuffle.partitioner: with range a merge cannot check that the rows of a reduce ",
        ),
    ],
)
def test_each_mistake_is_reported_with_its_key(
    plan: Plan, sections: dict[str, Any], start: str
) -> None:
    with pytest.raises(JobFileError) as refused:
        plan(job(**sections))
    assert str(refused.value).startswith(start)


def test_columns_that_are_missing_in_the_result_are_refused(plan: Plan) -> None:
    without_key = {"visits": {"path": "visits.csv"}}
    with pytest.raises(ColumnNotFoundError, match=r"output.keys: inputs.visits has no column 'id'"):
        plan(job(inputs=without_key, output={**MERGE, "keys": ["id"]}))
    with pytest.raises(ColumnNotFoundError, match=r"output.order_by: inputs.visits has no"):
        plan(job(output={**MERGE, "order_by": "at"}))
    groups = {"group_by": ["url"], "aggregate": {"n": "count(*)"}}
    with pytest.raises(
        ColumnNotFoundError, match=r"output.order_by: the result has no .* 'url', 'n'"
    ):
        plan(job(reduce=groups, output={**MERGE, "order_by": "weight"}))
