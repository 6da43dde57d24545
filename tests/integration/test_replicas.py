"""Readers, writers and reports of losses with two replicas on a standing cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pyarrow as pa
import pytest

import mrflight
from mrflight.config.identity import ANONYMOUS
from mrflight.errors import CorruptBlockError, ServerUnavailableError, ShuffleNotFoundError
from mrflight.shuffle.metadata.registry import Registry
from mrflight.shuffle.wire.calls import notify
from mrflight.shuffle.wire.protocol import DataAction, ShuffleName
from mrflight.system.deadlines import Timeouts
from tests.support.clusters.cluster import StandingCluster, data_server, standing_cluster
from tests.support.clusters.near_cluster import near_metadata
from tests.support.clusters.numbered_rows import numbers
from tests.support.clusters.registries import TIMEOUT_S, Clock
from tests.support.suite.waiting import hang_s

ROWS = 200_000
PARTITIONS = 4


@pytest.fixture
def running() -> Iterator[StandingCluster]:
    with standing_cluster(data_servers=2) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: StandingCluster) -> Iterator[mrflight.Cluster]:
    with mrflight.connect(running.metadata) as client:
        yield client
        for shuffle in client.status().shuffles:  # or the servers would wait for readers
            client.open_shuffle(shuffle.id).drop()


def batch(start: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(start, start + ROWS))})


def let_forget(shuffle: mrflight.Shuffle, location: str) -> None:
    """Drop a shuffle on one server, as a server does that was declared lost and is back."""
    assert notify([location], DataAction.DROP_SHUFFLE, ShuffleName(shuffle.id), ANONYMOUS) == {}


def test_readers_use_the_other_replica_if_a_server_has_dropped_its_own(
    cluster: mrflight.Cluster,
) -> None:
    shuffle = cluster.create_shuffle("dropped", PARTITIONS, replicas=2)
    with shuffle.writer(0, key=["n"]) as out:
        out.write(batch(0))
    let_forget(shuffle, shuffle.placement()[0][0])
    assert numbers(shuffle, PARTITIONS) == list(range(ROWS))


@pytest.mark.slow
def test_writers_continue_without_a_server_that_has_dropped_their_blocks(
    cluster: mrflight.Cluster,
) -> None:
    shuffle = cluster.create_shuffle("dropped", PARTITIONS, replicas=2)
    gone = shuffle.placement()[0][0]
    with shuffle.writer(0, key=["n"], buffer_bytes=2**16) as out:
        out.write(batch(0))
        let_forget(shuffle, gone)
        for start in range(ROWS, 10 * ROWS, ROWS):
            out.write(batch(start))
    assert all(gone not in places for places in shuffle.placement())
    assert shuffle.health().lost_maps == []
    assert numbers(shuffle, PARTITIONS) == list(range(10 * ROWS))


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_damaged_block_that_is_reported_is_written_again_or_read_elsewhere(
    cluster: mrflight.Cluster, replicas: int
) -> None:
    shuffle = cluster.create_shuffle("damaged", PARTITIONS, replicas)
    with shuffle.writer(0, key=["n"]) as out:
        out.write(batch(0))
    damage = CorruptBlockError("a block is damaged")
    damage.location, damage.partition = shuffle.placement()[1][0], 1
    assert shuffle.report(damage)
    assert shuffle.health().lost_maps == ([0] if replicas == 1 else [])
    if replicas == 1:
        with shuffle.writer(0, 1, key=["n"]) as out:
            out.write(batch(0))
    assert numbers(shuffle, PARTITIONS) == list(range(ROWS))


def test_a_reported_server_is_lost_only_if_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The metadata server asks it, and waits here for a slow one."""
    monkeypatch.setattr("mrflight.servers.metadata._PROBE", Timeouts(call_s=hang_s()))
    with ExitStack() as stack:
        metadata = stack.enter_context(near_metadata(Registry(Clock(), TIMEOUT_S)))
        servers = [stack.enter_context(data_server(metadata))[0] for _ in range(2)]
        cluster = stack.enter_context(mrflight.connect(metadata))
        shuffle = cluster.create_shuffle("gone", PARTITIONS)
        with shuffle.writer(0, key=["n"]) as out:
            out.write(batch(0))
        failure = ServerUnavailableError("cannot be reached")
        failure.location = shuffle.placement()[0][0]
        assert not shuffle.report(failure)
        assert shuffle.health().lost_maps == []
        for process in servers:
            process.kill()
            process.wait()
        assert shuffle.report(failure)
        shuffle.drop()


@pytest.mark.slow
def test_a_server_that_is_silent_for_some_user_is_lost_if_there_is_another(
    cluster: mrflight.Cluster,
) -> None:
    shuffle = cluster.create_shuffle("parted", PARTITIONS)
    with shuffle.writer(0, key=["n"]) as out:
        out.write(batch(0))
    failure = ServerUnavailableError("nothing answers")
    failure.is_silent = True
    servers = {at for places in shuffle.placement() for at in places}
    while len(servers) > 1:
        failure.location = servers.pop()
        assert shuffle.report(failure)
        assert {at for places in shuffle.placement() for at in places} == servers
    (failure.location,) = servers
    assert not shuffle.report(failure)
    assert shuffle.health().lost_maps == [0]
    with shuffle.writer(0, 1, key=["n"]) as out:
        out.write(batch(0))
    assert numbers(shuffle, PARTITIONS) == list(range(ROWS))


def test_an_error_that_names_no_data_server_is_not_reported(cluster: mrflight.Cluster) -> None:
    shuffle = cluster.create_shuffle("whole", PARTITIONS)
    of_metadata = ServerUnavailableError("cannot be reached")
    of_metadata.location = shuffle.metadata
    nowhere = CorruptBlockError("a block is damaged")
    for error in (ValueError("1"), ShuffleNotFoundError("none"), of_metadata, nowhere):
        assert not shuffle.report(error)
    assert shuffle.health().version == 0
