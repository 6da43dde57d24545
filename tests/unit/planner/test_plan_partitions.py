"""Tests of the number of partitions, set by the job or by its input, workers and memory."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mrflight.config.memory import Processes, divide_memory, min_memory
from mrflight.ids import MAX_PARTITIONS
from mrflight.planner.partition_count import (
    AUTO_PARTITION_BYTES,
    MIN_BLOCK_BYTES,
    PartitionCount,
    Reason,
    count_partitions,
)
from mrflight.planner.stage_plan import choose_compression
from mrflight.sources import open_source
from tests.support.jobs.plans import MEMORY, SPLIT_BYTES, Plan, job


@pytest.mark.parametrize(
    ("rows_bytes", "workers", "partitions", "reason"),
    [
        (0, 4, 1, "rows"),
        (1, 4, 1, "rows"),
        (AUTO_PARTITION_BYTES, 4, 1, "rows"),
        (AUTO_PARTITION_BYTES + 1, 4, 4, "workers"),
        (AUTO_PARTITION_BYTES + 1, 1, 2, "rows"),
        (4 * AUTO_PARTITION_BYTES, 4, 4, "rows"),
        (10 * AUTO_PARTITION_BYTES, 4, 10, "rows"),
        (10 * AUTO_PARTITION_BYTES + 1, 4, 11, "rows"),
        (2**60, 4, MEMORY.writer // MIN_BLOCK_BYTES, "writer"),
        (AUTO_PARTITION_BYTES + 1, 10_000, 10_000, "workers"),
        (2**60, 200_000, MAX_PARTITIONS, "maximum"),
    ],
)
def test_auto_partitions_follow_the_input_and_the_workers(
    rows_bytes: int, workers: int, partitions: int, reason: Reason
) -> None:
    counted = count_partitions(job(), rows_bytes, workers, MEMORY)
    assert counted == PartitionCount(partitions, reason, rows_bytes, AUTO_PARTITION_BYTES)


def test_auto_partitions_fit_a_reducer_with_little_memory() -> None:
    minimum = divide_memory(min_memory(Processes(2, 1)), Processes(2, 1))
    counted = count_partitions(job(), 2**30, 2, minimum)
    assert counted.each_bytes == minimum.reducer // 4 < AUTO_PARTITION_BYTES
    assert 2**30 / counted.number <= minimum.reducer / 4


def test_compressed_files_are_larger_in_memory(plan: Plan, tmp_path: Path) -> None:
    pq.write_table(pa.table({"url": ["a"] * 10}), tmp_path / "visits.parquet")
    (tmp_path / "visits.csv.gz").write_bytes(gzip.compress(b"url\na\n"))
    for name in ("visits.parquet", "visits.csv.gz", "visits.csv"):
        section = job(inputs={"visits": {"path": name, "key": ["url"]}}).inputs["visits"]
        source = open_source("visits", section, tmp_path, {}, SPLIT_BYTES)
        assert source.rows_bytes == source.size_bytes * (1 if name == "visits.csv" else 4)


@pytest.mark.parametrize(
    ("sections", "is_adaptive"),
    [
        ({"shuffle": {"partitions": "auto"}}, True),
        ({"shuffle": {"partitions": 7}}, False),
        ({"shuffle": {"partitions": "auto"}, "reduce": {"function": "clicks:reduce"}}, False),
    ],
)
def test_partitions_are_coalesced_if_the_job_sets_no_number_and_no_function(
    plan: Plan, sections: dict[str, Any], is_adaptive: bool
) -> None:
    assert plan(job(**sections)).is_adaptive is is_adaptive


@pytest.mark.parametrize("partitions", [1, 7, MAX_PARTITIONS])
def test_the_job_may_set_the_number_of_partitions(partitions: int) -> None:
    spec = job(shuffle={"partitions": partitions})
    counted = count_partitions(spec, 2**40, 4, MEMORY)
    assert (counted.number, counted.reason) == (partitions, "set")


@pytest.mark.parametrize(
    ("setting", "rows_bytes", "compression"),
    [
        ("auto", 2**28 - 1, "none"),
        ("auto", 2**28, "lz4"),
        ("none", 2**40, "none"),
        ("zstd", 1, "zstd"),
    ],
)
def test_blocks_of_large_shuffles_are_compressed(
    setting: str, rows_bytes: int, compression: str
) -> None:
    assert choose_compression(job(shuffle={"compression": setting}), rows_bytes) == compression
