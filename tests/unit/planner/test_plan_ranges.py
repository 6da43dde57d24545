"""Ranges are planned from a sample of the whole input, and their rows are sorted."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mrflight.config.sort_key import ascending
from mrflight.tasks.sample_task import run_sample
from tests.support.jobs.plans import Plan, job


def test_the_sample_for_ranges_covers_the_whole_input(plan: Plan) -> None:
    planned = plan(job(shuffle={"partitioner": "range", "partitions": 3}))
    samples, maps = planned.sample_tasks, planned.map_tasks
    assert {sample.split.path for sample in samples} == {task.split.path for task in maps}
    assert max(sample.split.stop for sample in samples) > max(task.split.start for task in maps)
    assert min(sample.split.start for sample in samples) < min(task.split.stop for task in maps)
    assert all(sample.sort_keys == ascending(["url"]) and sample.rows >= 100 for sample in samples)
    assert len(samples) == 64


def test_the_rows_of_a_range_are_sorted_by_the_key(plan: Plan) -> None:
    spec = job(
        inputs={"visits": {"path": "visits.csv", "key": ["weight", "url"]}},
        shuffle={"partitioner": "range", "partitions": 3},
    )
    assert plan(spec).reduce_spec.sort_by == ascending(["weight", "url"])
    assert plan(job()).reduce_spec.sort_by == ()


def test_more_partitions_need_a_larger_sample(plan: Plan) -> None:
    def sampled(partitions: int) -> int:
        spec = job(shuffle={"partitioner": "range", "partitions": partitions})
        return sum(sample.rows for sample in plan(spec).sample_tasks)

    assert (sampled(10), sampled(10_000)) == (64 * 100, 100 * 10_000)


@pytest.mark.parametrize(
    ("section", "columns", "sampled"),
    [({}, ["weight"], [1, 2]), ({"filter": "not extra"}, ["extra", "weight"], [2])],
)
def test_samples_read_what_the_key_needs(
    plan: Plan, tmp_path: Path, section: dict[str, str], columns: list[str], sampled: list[int]
) -> None:
    rows = {"url": ["a", "b"], "extra": [True, False], "weight": [1, 2]}
    pq.write_table(pa.table(rows), tmp_path / "visits.parquet")
    visits = {"path": "visits.parquet", "key": ["weight"], **section}
    (sample,) = plan(job(inputs={"visits": visits}, shuffle={"partitioner": "range"})).sample_tasks
    assert sample.reader.schema is not None
    assert sample.reader.schema.names == columns
    assert run_sample(sample).to_pydict() == {"0": sampled}
