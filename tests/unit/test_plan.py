"""From a spec and the inputs as they were found to tasks, or to the mistake in the job file."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mrflight.errors import (
    ColumnNotFoundError,
    JobError,
    JobFileError,
    KeyTypeError,
    UserFunctionError,
)
from mrflight.ids import MAX_PARTITIONS
from mrflight.job_file import decode_job
from mrflight.memory import divide_memory, least_memory
from mrflight.plan import AUTO_PARTITION_BYTES, JobPlan, count_partitions, plan_job
from mrflight.sources import open_source
from mrflight.spec import JobSpec

SPLIT_BYTES = 100
WORKERS = 4
MEMORY = divide_memory(8 * 2**30, WORKERS, data_servers=1)

Plan = Callable[..., JobPlan]


def job(**sections: Any) -> JobSpec:
    """A job on one input, ``visits``, keyed by url; sections replace or add to that."""
    return decode_job(
        {
            "job": {"name": "clicks"},
            "inputs": {"visits": {"path": "visits.csv", "key": ["url"]}},
            "output": {"table": "out"},
            **sections,
        }
    )


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """Plans a job over two csv files that are cut into several splits each."""
    for name, rows in (("visits", 40), ("more", 20)):
        lines = [f"https://site/{i % 7},{i}" for i in range(rows)]
        (tmp_path / f"{name}.csv").write_text("url,weight\n" + "\n".join(lines) + "\n")

    def planned(spec: JobSpec) -> JobPlan:
        sources = [
            open_source(name, section, tmp_path, {}, SPLIT_BYTES)
            for name, section in spec.inputs.items()
        ]
        return plan_job(spec, sources, str(tmp_path), "job-1", WORKERS, MEMORY)

    return planned


def test_map_tasks_are_numbered_in_the_order_of_the_inputs_and_their_splits(plan: Plan) -> None:
    visits, more = {"path": "visits.csv", "key": ["url"]}, {"path": "more.csv", "key": ["url"]}
    planned = plan(job(inputs={"visits": visits, "more": more}))
    tasks = planned.map_tasks
    assert [task.map_id for task in tasks] == list(range(len(tasks)))
    inputs = [task.input_name for task in tasks]
    assert inputs == sorted(inputs, key=["visits", "more"].index)
    for name in ("visits", "more"):
        splits = [task.split for task in tasks if task.input_name == name]
        assert len(splits) > 2
        assert [split.start for split in splits] == sorted(split.start for split in splits)


def test_a_plan_carries_what_the_job_says(plan: Plan) -> None:
    spec = job(
        shuffle={"partitions": 5, "compression": "zstd"},
        reduce={"group_by": ["url"], "aggregate": {"clicks": "sum(weight)"}},
    )
    planned = plan(spec)
    assert (planned.job_id, planned.partitions) == ("job-1", 5)
    assert planned.sample_tasks == ()
    assert planned.reduction.group_by == ("url",)
    assert [str(aggregate.name) for aggregate in planned.reduction.aggregates] == ["clicks"]
    for task in planned.map_tasks:
        assert (task.partitioner.kind, task.partitioner.key) == ("hash", ("url",))
        assert task.partitioner.partitions == 5
        assert task.compression == "zstd"
        assert task.reduction == planned.reduction


def test_tasks_travel(plan: Plan) -> None:
    for task in plan(job()).map_tasks:
        again = pickle.loads(pickle.dumps(task))
        assert (again.map_id, again.split, again.partitioner) == (
            task.map_id,
            task.split,
            task.partitioner,
        )


def test_the_key_is_the_groups_columns_where_nothing_is_said(plan: Plan) -> None:
    spec = job(inputs={"visits": {"path": "visits.csv"}}, reduce={"group_by": ["url"]})
    assert plan(spec).map_tasks[0].partitioner.key == ("url",)


def test_an_empty_reduce_section_is_a_repartition(plan: Plan) -> None:
    reduction = plan(job(reduce={})).reduction
    assert (reduction.group_by, reduction.aggregates, reduction.function) == ((), (), None)


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


@pytest.mark.parametrize(
    ("rows_bytes", "workers", "partitions"),
    [
        (0, 4, 1),
        (1, 4, 1),
        (AUTO_PARTITION_BYTES, 4, 1),
        (AUTO_PARTITION_BYTES + 1, 4, 4),
        (AUTO_PARTITION_BYTES + 1, 1, 2),
        (10 * AUTO_PARTITION_BYTES, 4, 10),
        (10 * AUTO_PARTITION_BYTES + 1, 4, 11),
        (2**60, 4, MEMORY.writer // (16 * 2**10)),
    ],
)
def test_auto_partitions_follow_the_input_and_the_workers(
    rows_bytes: int, workers: int, partitions: int
) -> None:
    assert count_partitions(job(), rows_bytes, workers, MEMORY) == partitions


def test_auto_partitions_fit_a_reducer_with_little_memory() -> None:
    little = divide_memory(least_memory(2, 1), 2, data_servers=1)
    partitions = count_partitions(job(), 2**30, 2, little)
    assert 2**30 / partitions <= little.reducer / 4


def test_what_is_compressed_weighs_more_in_memory(plan: Plan, tmp_path: Path) -> None:
    pq.write_table(pa.table({"url": ["a"] * 10}), tmp_path / "visits.parquet")
    (tmp_path / "visits.csv.gz").write_bytes(gzip.compress(b"url\na\n"))
    for name in ("visits.parquet", "visits.csv.gz", "visits.csv"):
        section = job(inputs={"visits": {"path": name, "key": ["url"]}}).inputs["visits"]
        source = open_source("visits", section, tmp_path, {}, SPLIT_BYTES)
        assert source.rows_bytes == source.size_bytes * (1 if name == "visits.csv" else 4)


def test_a_few_large_splits_are_cut_so_that_every_worker_has_several(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mrflight.plan._LEAST_SPLIT_BYTES", 20)
    (tmp_path / "visits.csv").write_text("url,weight\n" + "a,1\n" * 200)
    whole = tmp_path / "whole.csv.gz"
    whole.write_bytes(gzip.compress((tmp_path / "visits.csv").read_bytes()))
    visits = {"path": "visits.csv", "key": ["url"]}
    cut = [task.split for task in plan(job(inputs={"visits": visits})).map_tasks]
    assert 4 * WORKERS <= len(cut) <= 6 * WORKERS
    assert [split.start for split in cut[1:]] == [split.stop for split in cut[:-1]]
    assert (cut[0].start, cut[-1].stop) == (0, 811)
    assert max(split.size_bytes for split in cut) <= 811 / len(cut) * 1.5
    visits["path"] = whole.name
    assert len(plan(job(inputs={"visits": visits})).map_tasks) == 1


@pytest.mark.parametrize(
    ("shuffle", "combines"),
    [
        ({"partitioner": "hash"}, True),
        ({"partitioner": "range"}, True),
        ({"partitioner": "clicks:place"}, False),  # which may look at any column
    ],
)
def test_maps_combine_where_the_partitioner_looks_at_the_group_only(
    plan: Plan, shuffle: dict[str, Any], combines: bool
) -> None:
    reduce = {"group_by": ["url"], "aggregate": {"n": "count(*)"}}
    assert plan(job(shuffle=shuffle, reduce=reduce)).reduction.combines is combines


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
def test_a_function_is_told_between_which_keys_a_partition_may_be_cut(
    plan: Plan, sections: dict[str, Any], key: tuple[str, ...]
) -> None:
    planned = plan(job(reduce={"function": "clicks:reduce"}, **sections))
    assert planned.reduction.key == key


@pytest.mark.parametrize(
    ("sections", "resizes"),
    [
        ({"shuffle": {"partitions": "auto"}}, True),
        ({"shuffle": {"partitions": 7}}, False),
        ({"shuffle": {"partitions": "auto"}, "reduce": {"function": "clicks:reduce"}}, False),
    ],
)
def test_partitions_share_files_where_their_number_is_ours_and_their_rows_alike(
    plan: Plan, sections: dict[str, Any], resizes: bool
) -> None:
    assert plan(job(**sections)).resizes is resizes


@pytest.mark.parametrize("partitions", [1, 7, MAX_PARTITIONS])
def test_partitions_are_as_told(partitions: int) -> None:
    spec = job(shuffle={"partitions": partitions})
    assert count_partitions(spec, 2**40, 4, MEMORY) == partitions


@pytest.mark.parametrize(
    ("sections", "start"),
    [
        ({"shuffle": {"partitions": 0}}, "shuffle.partitions: 0 is not from 1 to 100000; "),
        ({"shuffle": {"partitions": -3}}, "shuffle.partitions: -3 is not from 1 to 100000; "),
        (
            {"shuffle": {"partitions": MAX_PARTITIONS + 1}},
            "shuffle.partitions: 100001 is not from 1 to 100000; ",
        ),
        (
            {"reduce": {"function": "m:f", "group_by": ["url"]}},
            "reduce.function: takes the place of group_by and aggregate; ",
        ),
        (
            {"reduce": {"function": "m:f", "aggregate": {"n": "count(*)"}}},
            "reduce.function: takes the place of group_by and aggregate; ",
        ),
        (
            {"reduce": {"aggregate": {"n": "count(*)"}}},
            "reduce.group_by: an aggregate needs the columns to group by",
        ),
        (
            {"reduce": {"group_by": ["url"], "aggregate": {"url": "count(*)"}}},
            "reduce.aggregate.url: is the name of a group_by column",
        ),
        (
            {"reduce": {"group_by": ["url"], "aggregate": {"n": "median(weight)"}}},
            "reduce.aggregate.n: 'median(weight)' is not an aggregate; ",
        ),
        (
            {"inputs": {"visits": {"path": "visits.csv"}}},
            "inputs.visits.key: the hash partitioner needs the columns to partition by; ",
        ),
        (
            {"inputs": {"visits": {"path": "visits.csv"}}, "shuffle": {"partitioner": "range"}},
            "inputs.visits.key: the range partitioner needs the columns to partition by; ",
        ),
        (
            {"inputs": {"visits": {"path": "visits.csv", "key": ["url", "url"]}}},
            "inputs.visits.key: ['url', 'url'] names a column twice",
        ),
        (
            {"shuffle": {"partitioner": "round_robin"}, "reduce": {"group_by": ["url"]}},
            "shuffle.partitioner: round_robin does not bring equal keys together, ",
        ),
        (
            {"reduce": {"group_by": ["weight"]}},
            "inputs.visits.key: ['url'] must be among reduce.group_by, ['weight'], ",
        ),
        (
            {"shuffle": {"partitioner": "hsah"}},
            "shuffle.partitioner: 'hsah' is none of hash, range, round_robin or module:function",
        ),
    ],
)
def test_each_mistake_is_named_by_its_key(plan: Plan, sections: dict[str, Any], start: str) -> None:
    spec = job(**sections)
    with pytest.raises(JobFileError) as refused:
        plan(spec)
    assert str(refused.value).startswith(start)


@pytest.mark.parametrize(
    ("sections", "start"),
    [
        (
            {"inputs": {"visits": {"path": "visits.csv", "map": "weigh", "key": ["url"]}}},
            "inputs.visits.map: 'weigh' is not a function; ",
        ),
        ({"reduce": {"function": "m.:f"}}, "reduce.function: 'm.:f' is not a function; "),
        (
            {"shuffle": {"partitioner": "m:f:g"}},
            "shuffle.partitioner: 'm:f:g' is not a function; ",
        ),
    ],
)
def test_what_is_no_function_is_named_by_its_key(
    plan: Plan, sections: dict[str, Any], start: str
) -> None:
    spec = job(**sections)
    with pytest.raises(UserFunctionError) as refused:
        plan(spec)
    assert str(refused.value).startswith(start)


def test_columns_are_checked_where_no_map_makes_them(plan: Plan) -> None:
    inputs = {"visits": {"path": "visits.csv", "key": ["ulr"]}}
    with pytest.raises(ColumnNotFoundError, match="'ulr'"):
        plan(job(inputs=inputs))
    with pytest.raises(ColumnNotFoundError, match=r"^reduce\.aggregate\.n: .*'wait'"):
        plan(job(reduce={"group_by": ["url"], "aggregate": {"n": "sum(wait)"}}))


def test_columns_are_not_checked_where_a_map_makes_them(plan: Plan) -> None:
    inputs = {"visits": {"path": "visits.csv", "map": "m:f", "key": ["made"]}}
    assert plan(job(inputs=inputs)).map_tasks[0].partitioner.key == ("made",)


def test_a_key_without_a_hash_is_refused(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "nested.json").write_text('{"tags": ["a"]}\n')
    inputs = {"nested": {"path": "nested.json", "key": ["tags"]}}
    with pytest.raises(KeyTypeError, match="tags"):
        plan(job(inputs=inputs))


@pytest.mark.parametrize("group_by", [["url", "url"], ["url", "weight", "weight"]])
def test_a_group_column_is_named_once(plan: Plan, group_by: list[str]) -> None:
    spec = job(reduce={"group_by": group_by})
    with pytest.raises(JobFileError, match=r"^reduce\.group_by: .*twice"):
        plan(spec)


@pytest.mark.parametrize("partitioner", ["hash", "range"])
def test_a_job_without_inputs_is_refused(partitioner: str) -> None:
    with pytest.raises(JobFileError, match=r"^inputs"):
        plan_job(job(inputs={}, shuffle={"partitioner": partitioner}), [], "/", "job-1", WORKERS)


@pytest.mark.parametrize(
    "sections",
    [
        {"shuffle": {"replicas": 0}},
        {"cluster": {"data_servers": -1}},
        {"cluster": {"data_servers": 1}, "shuffle": {"replicas": 2}},
    ],
    ids=str,
)
def test_numbers_that_cannot_work_are_refused_before_anything_runs(
    plan: Plan, sections: dict[str, Any]
) -> None:
    with pytest.raises(JobError):
        plan(job(**sections))


def test_ranges_are_sampled_over_the_whole_input(plan: Plan) -> None:
    planned = plan(job(shuffle={"partitioner": "range", "partitions": 3}))
    samples, maps = planned.sample_tasks, planned.map_tasks
    assert {sample.split.path for sample in samples} == {task.split.path for task in maps}
    assert max(sample.split.stop for sample in samples) > max(task.split.start for task in maps)
    assert min(sample.split.start for sample in samples) < min(task.split.stop for task in maps)
    assert all(sample.key == ("url",) and sample.rows >= 100 for sample in samples)
    assert len(samples) < 2 * 64


def test_ranges_are_sorted_inside_by_the_key(plan: Plan) -> None:
    spec = job(
        inputs={"visits": {"path": "visits.csv", "key": ["weight", "url"]}},
        shuffle={"partitioner": "range", "partitions": 3},
    )
    assert plan(spec).reduction.sort_by == ("weight", "url")
    assert plan(job()).reduction.sort_by == ()


def test_more_partitions_take_more_sampled_rows(plan: Plan) -> None:
    def sampled(partitions: int) -> int:
        spec = job(shuffle={"partitioner": "range", "partitions": partitions})
        return sum(sample.rows for sample in plan(spec).sample_tasks)

    assert sampled(10_000) >= 100 * 10_000 * 0.9
    assert sampled(10) <= sampled(10_000)
