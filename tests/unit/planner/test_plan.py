"""Tests of the plan of a stage: the tasks that follow from its spec and its inputs."""

from __future__ import annotations

import gzip
import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from mrflight.errors import JobFileError
from mrflight.planner.stage_plan import plan_stage
from mrflight.sources import open_source
from mrflight.sources.base import Split
from tests.support.jobs.plans import MEMORY, SPLIT_BYTES, Plan, job
from tests.support.suite.messages import refused


def test_map_tasks_are_numbered_in_the_order_of_the_inputs_and_their_splits(plan: Plan) -> None:
    visits, more = {"path": "visits.csv", "key": ["url"]}, {"path": "more.csv", "key": ["url"]}
    planned = plan(job(inputs={"visits": visits, "more": more}))
    tasks = planned.map_tasks
    assert [task.map_id for task in tasks] == list(range(len(tasks)))
    inputs = [task.input_name for task in tasks]
    assert inputs == sorted(inputs, key=["visits", "more"].index)
    for name in ("visits", "more"):
        splits = [task.split for task in tasks if task.input_name == name]
        assert len(splits) == {"visits": 8, "more": 4}[name]
        assert [split.start for split in splits] == sorted(split.start for split in splits)


def test_a_plan_follows_the_job_file(plan: Plan) -> None:
    spec = job(
        shuffle={"partitions": 5, "compression": "zstd"},
        reduce={"group_by": ["url"], "aggregate": {"clicks": "sum(weight)"}},
    )
    planned = plan(spec)
    assert planned.partitions == 5
    assert planned.sample_tasks == ()
    assert planned.reduce_spec.group_by == ("url",)
    assert [str(aggregate.name) for aggregate in planned.reduce_spec.aggregates] == ["clicks"]
    for task in planned.map_tasks:
        assert (task.partitioner.kind, task.partitioner.key) == ("hash", ("url",))
        assert task.partitioner.partitions == 5
        assert task.limits.compression == "zstd"
        assert task.reduce_spec == planned.reduce_spec


def test_tasks_can_be_pickled(plan: Plan) -> None:
    for task in plan(job()).map_tasks:
        copy = pickle.loads(pickle.dumps(task))
        assert (copy.map_id, copy.split, copy.partitioner) == (
            task.map_id,
            task.split,
            task.partitioner,
        )


def test_the_key_defaults_to_the_group_columns(plan: Plan) -> None:
    spec = job(inputs={"visits": {"path": "visits.csv"}}, reduce={"group_by": ["url"]})
    assert plan(spec).map_tasks[0].partitioner.key == ("url",)


def test_an_empty_reduce_section_is_a_repartition(plan: Plan) -> None:
    reduce_spec = plan(job(reduce={})).reduce_spec
    assert (reduce_spec.group_by, reduce_spec.aggregates, reduce_spec.function) == ((), (), None)


def test_the_users_functions_are_listed_once(plan: Plan) -> None:
    spec = job(
        inputs={"visits": {"path": "visits.csv", "map": "clicks:weigh", "key": ["url"]}},
        shuffle={"partitioner": "clicks:place"},
        reduce={"function": "clicks:reduce"},
    )
    functions = plan(spec).functions
    assert {str(function) for function in functions} == {
        "clicks:weigh",
        "clicks:place",
        "clicks:reduce",
    }
    assert {function.key_path for function in functions} == {
        "inputs.visits.map",
        "shuffle.partitioner",
        "reduce.function",
    }


def test_a_few_large_splits_are_divided_so_that_every_worker_has_several(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mrflight.planner.stage_plan._MIN_SPLIT_BYTES", 20)
    (tmp_path / "visits.csv").write_text("url,weight\n" + "a,1\n" * 200)
    whole = tmp_path / "whole.csv.gz"
    whole.write_bytes(gzip.compress((tmp_path / "visits.csv").read_bytes()))
    visits = {"path": "visits.csv", "key": ["url"]}
    splits = [task.split for task in plan(job(inputs={"visits": visits})).map_tasks]
    assert len(splits) == 16
    assert [split.start for split in splits[1:]] == [split.stop for split in splits[:-1]]
    assert (splits[0].start, splits[-1].stop) == (0, 811)
    assert max(split.size_bytes for split in splits) <= 811 / len(splits) * 1.5
    visits["path"] = whole.name
    assert len(plan(job(inputs={"visits": visits})).map_tasks) == 1


@pytest.mark.parametrize(
    ("files", "fewest", "most"),
    [(1, 1, 1), (63, 1, 1), (65, 8, 16), (1000, 8, 9)],
)
def test_many_small_files_are_packed_so_that_every_worker_has_several_maps(
    plan: Plan, tmp_path: Path, files: int, fewest: int, most: int
) -> None:
    (tmp_path / "many").mkdir()
    for number in range(files):
        (tmp_path / "many" / f"{number:04}.csv").write_text("url,weight\na,1\n")
    many = {"path": "many", "key": ["url"]}
    tasks = plan(job(inputs={"visits": many})).map_tasks
    assert fewest <= len(tasks) <= most
    paths = [piece.path for task in tasks for piece in task.split.pieces]
    assert paths == sorted(paths)
    assert len(set(paths)) == len(paths) == files
    samples = plan(job(inputs={"visits": many}, shuffle={"partitioner": "range"})).sample_tasks
    assert len(samples) < 2 * 64
    sampled = [piece.path for sample in samples for piece in sample.split.pieces]
    assert list(dict.fromkeys(sampled)) == paths


@pytest.mark.parametrize(
    ("shuffle", "combines"),
    [
        ({"partitioner": "hash"}, True),
        ({"partitioner": "range"}, True),
        ({"partitioner": "clicks:place"}, False),  # it may use any column
    ],
)
def test_maps_combine_if_the_partitioner_uses_the_group_columns_only(
    plan: Plan, shuffle: dict[str, Any], combines: bool
) -> None:
    reduce = {"group_by": ["url"], "aggregate": {"n": "count(*)"}}
    assert plan(job(shuffle=shuffle, reduce=reduce)).reduce_spec.combines is combines


@pytest.mark.parametrize(
    ("sections", "key"),
    [
        ({}, ("url",)),
        ({"shuffle": {"partitioner": "range"}}, ()),
        (
            {
                "inputs": {
                    "visits": {"path": "visits.csv", "key": ["url"]},
                    "more": {"path": "more.csv", "key": ["weight"]},
                }
            },
            (),
        ),
    ],
)
def test_a_reduce_function_gets_the_key_by_which_a_partition_may_be_divided(
    plan: Plan, sections: dict[str, Any], key: tuple[str, ...]
) -> None:
    planned = plan(job(reduce={"function": "clicks:reduce"}, **sections))
    assert planned.reduce_spec.key == key


def test_a_job_with_one_partition_needs_no_key(plan: Plan) -> None:
    inputs = {"visits": {"path": "visits.csv"}}
    for named in ({}, {"partitioner": "hash"}):
        planned = plan(job(inputs=inputs, shuffle={"partitions": 1, **named}))
        assert {task.partitioner.kind for task in planned.map_tasks} == {"one"}
    with refused(JobFileError, "inputs.visits.key"):
        plan(job(inputs=inputs, shuffle={"partitions": 2, "partitioner": "hash"}))


@pytest.mark.parametrize(
    ("sections", "kind"),
    [
        ({}, "round_robin"),
        ({"shuffle": {"partitions": 3}}, "round_robin"),
        ({"output": {"table": "out", "mode": "merge", "keys": ["url"]}}, "hash"),
        ({"reduce": {"distinct": True}}, "hash"),
        ({"shuffle": {"partitioner": "hash"}, "reduce": {"distinct": True}}, "hash"),
    ],
)
def test_rows_that_nothing_brings_together_go_evenly_to_all_partitions(
    plan: Plan, sections: dict[str, Any], kind: str
) -> None:
    planned = plan(job(inputs={"visits": {"path": "visits.csv"}}, **sections))
    assert {task.partitioner.kind for task in planned.map_tasks} == {kind}


def _cut(folder: Path, *splits: Split) -> list[tuple[str, int, int]]:
    """Return what the maps of a round robin read if the files were opened as these splits."""
    spec = job(inputs={"visits": {"path": "visits.csv"}}, shuffle={"partitioner": "round_robin"})
    (folder / "visits.csv").write_text("url,weight\n")
    opened = open_source("visits", spec.inputs["visits"], folder, {}, SPLIT_BYTES)
    planned = plan_stage(spec, [replace(opened, splits=splits)], str(folder), 2, MEMORY)
    read = [task.split for task in planned.map_tasks]
    return [(each.path, each.start, each.stop) for each in read]


def _run(start: int, stop: int, unit_bytes: int, path: str = "a.parquet") -> Split:
    return Split(path, start, stop, unit_bytes * (stop - start))


def test_splits_that_are_too_large_for_the_workers_are_cut_as_one(tmp_path: Path) -> None:
    unit = 4 * 2**20
    runs = [_run(0, 15, unit), _run(15, 30, unit), _run(30, 45, unit), _run(45, 53, unit)]
    bounds = [0, 6, 13, 19, 26, 33, 39, 46, 53]
    assert _cut(tmp_path, *runs) == [("a.parquet", *each) for each in pairwise(bounds)]


def test_splits_are_not_joined_across_files_gaps_and_units_of_other_sizes(tmp_path: Path) -> None:
    unit = 4 * 2**20
    runs = [_run(0, 15, unit), _run(16, 31, unit), _run(31, 32, 15 * unit)]
    runs += [_run(32, 47, unit, "b.parquet")]
    cut = _cut(tmp_path, *runs)
    assert cut == [
        ("a.parquet", 0, 7), ("a.parquet", 7, 15), ("a.parquet", 16, 23), ("a.parquet", 23, 31),
        ("a.parquet", 31, 32), ("b.parquet", 32, 39), ("b.parquet", 39, 47),
    ]  # fmt: skip


def test_splits_that_are_small_enough_stay_as_they_were_opened(tmp_path: Path) -> None:
    runs = [_run(0, 5, 2**20), _run(5, 6, 2**20), _run(6, 13, 2**20)]
    assert _cut(tmp_path, *runs) == [(each.path, each.start, each.stop) for each in runs]
