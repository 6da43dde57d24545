"""Tests of how a job's memory is divided."""

from __future__ import annotations

import os

import pytest
from msgspec.structs import replace

from mrflight.config.memory import (
    MIB,
    Processes,
    default_memory,
    divide_memory,
    min_memory,
    plan_memory,
)
from mrflight.errors import JobFileError
from mrflight.frontend.dataset_writer import TO_CALLER
from tests.support.jobs.plans import job
from tests.support.suite.messages import refused

GIB = 1024 * MIB
TWO = Processes(workers=2, data_servers=1)


@pytest.mark.parametrize("total", [512 * MIB, 2 * GIB, 64 * GIB, 2**50])
@pytest.mark.parametrize("workers", [1, 2, 16])
@pytest.mark.parametrize("data_servers", [0, 1, 4])
def test_the_parts_do_not_exceed_the_total(total: int, workers: int, data_servers: int) -> None:
    total = max(total, min_memory(Processes(workers, data_servers)))
    plan = divide_memory(total, Processes(workers, data_servers))
    task = max(plan.writer + plan.combiner, plan.reducer + plan.encoder)
    assert plan.servers + workers * task < total
    assert min(plan.writer, plan.reducer, plan.encoder) >= 16 * MIB
    assert (plan.servers > 0) == (data_servers > 0)


def test_the_plan_of_two_gib_on_two_cores() -> None:
    plan = divide_memory(2 * GIB, TWO)
    assert plan.servers == 889 * MIB
    assert plan.reducer == pytest.approx(222 * MIB, abs=MIB)
    assert plan.writer == pytest.approx(128 * MIB, abs=MIB)


def test_a_rewrite_also_gets_the_memory_of_the_data_servers() -> None:
    plan = divide_memory(2 * GIB, TWO)
    assert plan.rewriter == pytest.approx(plan.reducer + plan.servers // 4, abs=8)
    standing = divide_memory(2 * GIB, Processes(2, 0))
    assert standing.rewriter == standing.reducer
    set_by_hand = divide_memory(2 * GIB, Processes(2, 1), servers=1600 * MIB)
    assert set_by_hand.rewriter == plan.rewriter


def test_the_memory_of_sql_is_set_aside_before_the_division() -> None:
    sql_bytes = (54 + 2 * 13) * MIB
    sections = {"cluster": {"memory": "640 MiB"}}
    output = {"table": "out", "mode": "merge", "keys": ["id"]}
    assert plan_memory(job(**sections, output=output), 2, 1) == divide_memory(
        640 * MIB, Processes(2, 1)
    )
    with_sql = plan_memory(job(**sections, output={**output, "delete_when": "op = 'D'"}), 2, 1)
    assert with_sql == replace(divide_memory(640 * MIB - sql_bytes, TWO), total=640 * MIB)
    assert min_memory(Processes(2, 1, with_sql=True)) == min_memory(TWO) + sql_bytes


def test_the_memory_of_a_caller_who_reads_the_rows_is_set_aside() -> None:
    sections = {"cluster": {"memory": "640 MiB"}}
    to_caller = plan_memory(job(**sections, output=dict(TO_CALLER)), 2, 1)
    assert to_caller == replace(divide_memory(576 * MIB, TWO), total=640 * MIB)


def test_the_servers_get_what_the_job_file_sets() -> None:
    spec = job(cluster={"memory": "4 GiB"}, shuffle={"memory": "1 GiB"})
    plan = plan_memory(spec, workers=2, data_servers=2)
    assert (plan.total, plan.servers) == (4 * GIB, GIB)
    assert plan_memory(spec, workers=2, data_servers=0).servers == 0


@pytest.mark.parametrize(
    ("sections", "key"),
    [
        ({"cluster": {"memory": "much"}}, "cluster.memory"),
        ({"shuffle": {"memory": "1 XB"}}, "shuffle.memory"),
        (
            {"cluster": {"memory": "100 MiB"}},
            "cluster.memory",
        ),
        (
            {"cluster": {"memory": "1 GiB"}, "shuffle": {"memory": "1 GiB"}},
            "cluster.memory",
        ),
    ],
)
def test_invalid_memory_is_refused(sections: dict[str, object], key: str) -> None:
    with refused(JobFileError, key):
        plan_memory(job(**sections), workers=2, data_servers=1)


def test_the_minimum_memory_is_accepted() -> None:
    minimum = min_memory(TWO)
    assert plan_memory(job(cluster={"memory": str(minimum)}), 2, 1).total == minimum
    with pytest.raises(JobFileError):
        plan_memory(job(cluster={"memory": str(minimum - 1)}), 2, 1)


def test_the_default_is_at_most_half_of_the_machines_memory() -> None:
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < default_memory() <= physical // 2
    assert plan_memory(job(), 2, 1).total >= min_memory(TWO)
