"""Benchmarks of a writer and a reader over loopback, with the servers in other processes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import mrflight
from tests.support.clusters.cluster import standing_cluster

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

PARTITIONS = 16
BATCHES = 5


@pytest.fixture(scope="module")
def cluster() -> Iterator[mrflight.Cluster]:
    with standing_cluster(data_servers=1) as servers, mrflight.connect(servers.metadata) as client:
        yield client


def write(shuffle: mrflight.Shuffle, map_id: int, clicks: pa.RecordBatch) -> None:
    with shuffle.writer(map_id=map_id, attempt=0, key=["url"]) as out:
        for _ in range(BATCHES):
            out.write(clicks)


def test_writer(
    benchmark: BenchmarkFixture, cluster: mrflight.Cluster, clicks: pa.RecordBatch
) -> None:
    shuffle = cluster.create_shuffle("writer", partitions=PARTITIONS, replicas=1)
    maps = count()
    benchmark.pedantic(lambda: write(shuffle, next(maps), clicks), rounds=5, warmup_rounds=1)
    shuffle.drop()


def test_reader(
    benchmark: BenchmarkFixture, cluster: mrflight.Cluster, clicks: pa.RecordBatch
) -> None:
    shuffle = cluster.create_shuffle("reader", partitions=PARTITIONS, replicas=1)
    write(shuffle, 0, clicks)

    def read() -> int:
        return sum(b.num_rows for p in range(PARTITIONS) for b in shuffle.reader(p))

    assert benchmark.pedantic(read, rounds=5, warmup_rounds=1) == BATCHES * clicks.num_rows
    shuffle.drop()
