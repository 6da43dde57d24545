"""A decommission while other servers fail: what can be moved is moved, wherever it can go."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from mrflight.servers import decommission
from mrflight.servers.block_copier import COPY_S
from mrflight.servers.decommission import Decommission

import mrflight
from mrflight.errors import MapOutputLostError, PlacementChangedError
from mrflight.shuffle.client.metadata_client import MetadataClient
from mrflight.shuffle.metadata.partition_moves import PartitionMoves
from mrflight.shuffle.metadata.registry import Registry
from mrflight.shuffle.store.block_store import BlockStore
from mrflight.shuffle.wire.block import Block
from mrflight.shuffle.wire.calls import call
from mrflight.shuffle.wire.cluster_status import ServerStats
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.move_protocol import PlanMoveResponse
from mrflight.shuffle.wire.protocol import DataAction, Done
from tests.support.clusters.cluster import data_server
from tests.support.clusters.near_cluster import (
    NearDataServer,
    another_in_place_of,
    near_data_servers,
    near_metadata,
)
from tests.support.clusters.registries import TIMEOUT_S, Clock
from tests.support.commands.threads import await_thread
from tests.support.faults.transport import FlakyTransport
from tests.support.suite.waiting import await_that, hang_s

PARTITIONS = 12


def registry_that_loses_nobody() -> Registry:
    """Return a registry whose clock stands still, so that no heartbeat is ever missed."""
    return Registry(Clock(), TIMEOUT_S)


class MovesOfOneRefusal(PartitionMoves):
    """Refuses the first move, as after a commit in between; ``refused`` is then set."""

    def __init__(self, moves: PartitionMoves) -> None:
        vars(self).update(vars(moves))
        self.refused = threading.Event()
        self.go_on = threading.Event()

    def record(
        self, shuffle_id: str, moves: dict[int, str], origin: str, epoch: int, version: int
    ) -> None:
        if not self.refused.is_set():
            self.refused.set()
            self.go_on.wait()
            raise PlacementChangedError("as where a commit came in between")
        super().record(shuffle_id, moves, origin, epoch, version)


class RegistryOfOneRefusal(Registry):
    """A registry that refuses the first move."""

    def __init__(self) -> None:
        super().__init__(Clock(), TIMEOUT_S)
        self.moves: MovesOfOneRefusal = MovesOfOneRefusal(self.moves)


class StoreThatTellsOfReads(BlockStore):
    """Calls ``before_second`` before the second read, which is in the middle of a copy."""

    reads = 0
    before_second: Callable[[], object]

    def read(self, *what: Any) -> Iterator[Block]:
        self.reads += 1
        if self.reads == 2:
            self.before_second()
        return super().read(*what)


@contextmanager
def rows_on_the_first(
    registry: Registry, folder: Path
) -> Iterator[tuple[str, list[NearDataServer], mrflight.Shuffle]]:
    """Three servers; the first one has all rows."""
    with near_metadata(registry) as metadata, near_data_servers(metadata, 1, folder) as first:
        shuffle = shuffle_with_rows(metadata)
        with near_data_servers(metadata, 2, folder) as others:
            yield metadata, first + others, shuffle


def shuffle_with_rows(metadata: str) -> mrflight.Shuffle:
    with mrflight.connect(metadata) as client:
        shuffle = client.create_shuffle("drained", PARTITIONS)
    write(shuffle)
    return shuffle


def write(shuffle: mrflight.Shuffle, attempt: int = 0) -> None:
    with shuffle.writer(0, attempt, key=["k"]) as out:
        out.write(pa.record_batch({"k": pa.array(range(1_000))}))


def drain(server: NearDataServer, metadata: str) -> threading.Thread:
    server.membership.drain()
    return running(Decommission(server.store, server.membership, metadata))


def running(draining: Decommission) -> threading.Thread:
    thread = threading.Thread(target=draining.run, daemon=True)
    thread.start()
    return thread


def assert_ends(draining: threading.Thread) -> None:
    await_thread(draining)


def assert_all_is_at(location: str, shuffle: mrflight.Shuffle) -> None:
    assert shuffle.placement() == [(location,)] * PARTITIONS
    assert numbers(shuffle) == Counter(range(1_000))


def numbers(shuffle: mrflight.Shuffle) -> Counter[int]:
    return Counter(
        number
        for partition in range(PARTITIONS)
        for piece in shuffle.reader(partition)
        for number in piece["k"].to_pylist()
    )


def corrupt(store: BlockStore) -> None:
    """Return the only block of partition 3."""
    held = store._shuffles["drained"].partition(3)
    (resident,) = held.resident
    assert resident is not None
    held.resident[0] = resident._replace(block=resident.block._replace(xxh3=0))


def remove_file(store: BlockStore) -> None:
    """Return the file of partition 3, which is on disk."""
    shuffle = store._shuffles["drained"]
    held = shuffle.partition(3)
    store._spiller._spill_piece(shuffle, held, 1)
    shuffle.spill_path(held).unlink()


def test_a_target_that_is_gone_after_the_copy_is_replaced(tmp_path: Path) -> None:
    registry = RegistryOfOneRefusal()
    with rows_on_the_first(registry, tmp_path) as (metadata, (first, second, third), shuffle):
        draining = drain(first, metadata)
        assert registry.moves.refused.wait(hang_s())
        second.die()
        registry.unregister_server(second.location)
        registry.moves.go_on.set()
        assert_ends(draining)
        assert_all_is_at(third.location, shuffle)


def test_a_failing_target_does_not_invalidate_others(tmp_path: Path) -> None:
    registry = registry_that_loses_nobody()
    with rows_on_the_first(registry, tmp_path) as (metadata, (first, second, third), shuffle):
        second.die()  # it remains a target, as no heartbeat is missed
        assert_ends(drain(first, metadata))
        assert_all_is_at(third.location, shuffle)


def test_a_live_target_that_refuses_blocks_is_replaced(tmp_path: Path) -> None:
    registry = registry_that_loses_nobody()
    with rows_on_the_first(registry, tmp_path) as (metadata, (first, *others), shuffle):
        refusing, other = sorted(others, key=lambda server: server.location)
        refusing.server.shutdown()  # its heartbeats continue
        assert_ends(drain(first, metadata))
        assert_all_is_at(other.location, shuffle)


def test_a_target_that_is_suspended_during_a_copy_is_replaced(
    tmp_path: Path,
) -> None:
    registry = registry_that_loses_nobody()
    with (
        near_metadata(registry) as metadata,
        near_data_servers(metadata, 1, tmp_path, StoreThatTellsOfReads) as (first,),
    ):
        shuffle = shuffle_with_rows(metadata)
        with data_server(metadata) as (one, ready), data_server(metadata) as (two, also_ready):
            servers = {ready.split()[-1]: one, also_ready.split()[-1]: two}
            _, (target, *_) = registry.moves.plan("drained", first.location)
            still = servers.pop(target)

            first.membership.drain()
            draining = Decommission(first.store, first.membership, metadata, copy_s=2.0)

            def stop() -> None:
                draining._copier._copy_s = COPY_S  # for the copies after this one
                await_that(lambda: shuffles_at(target) == 1, "the first block to arrive")
                still.send_signal(signal.SIGSTOP)

            assert isinstance(first.store, StoreThatTellsOfReads)
            first.store.before_second = stop
            try:
                assert_ends(running(draining))
                assert_all_is_at(*servers, shuffle)
            finally:
                still.kill()
                shuffle.drop()  # or the other server would wait for one to move it to


def shuffles_at(location: str) -> int:
    with Connections() as connections:
        return call(connections, location, DataAction.STATS, Done(), ServerStats).shuffles


def test_copies_on_a_target_that_was_restarted_are_made_again(
    tmp_path: Path,
) -> None:
    """It held nothing of the shuffle, so the placement has not changed."""
    registry = RegistryOfOneRefusal()
    with rows_on_the_first(registry, tmp_path) as (metadata, (first, second, third), shuffle):
        draining = drain(first, metadata)
        assert registry.moves.refused.wait(hang_s())
        version = shuffle.health().version
        second.die()
        with another_in_place_of(second, metadata, tmp_path):
            assert shuffle.health().version == version
            registry.moves.go_on.set()
            assert_ends(draining)
            places = {location for (location,) in shuffle.placement()}
            assert places == {second.location, third.location}
            assert shuffle.health().lost_maps == []
            assert numbers(shuffle) == Counter(range(1_000))


def test_a_target_that_drops_the_shuffle_during_a_copy_does_not_end_the_decommission(
    tmp_path: Path,
) -> None:
    """A server that was declared lost does so when it is back; the shuffle still exists."""
    registry = registry_that_loses_nobody()
    with (
        near_metadata(registry) as metadata,
        near_data_servers(metadata, 1, tmp_path / "first", StoreThatTellsOfReads) as (first,),
    ):
        shuffle = shuffle_with_rows(metadata)
        with near_data_servers(metadata, 1, tmp_path / "second") as (second,):

            def drop() -> None:
                await_that(lambda: second.store.stats().blocks == 1, "the first block")
                second.store.drop("drained")

            store = first.store
            assert isinstance(store, StoreThatTellsOfReads)
            store.before_second = drop
            draining = drain(first, metadata)
            await_that(
                lambda: store.reads >= 2 and second.store.shuffles() == [], "the shuffle to be gone"
            )
            with near_data_servers(metadata, 1, tmp_path / "third") as (third,):
                assert_ends(draining)
                assert_all_is_at(third.location, shuffle)


def test_copies_on_a_target_that_was_declared_lost_and_is_back_are_made_again(
    tmp_path: Path,
) -> None:
    """It is the same process, but has dropped all its blocks."""
    registry = RegistryOfOneRefusal()
    with rows_on_the_first(registry, tmp_path) as (metadata, (first, second, third), shuffle):
        draining = drain(first, metadata)
        assert registry.moves.refused.wait(hang_s())
        registry.unregister_server(second.location)
        await_that(lambda: registry.incarnation(second.location) is not None, "it to be back")
        assert second.store.shuffles() == []
        registry.moves.go_on.set()
        assert_ends(draining)
        places = {location for (location,) in shuffle.placement()}
        assert places == {second.location, third.location}
        assert numbers(shuffle) == Counter(range(1_000))


@pytest.mark.slow_but("remove_file")
@pytest.mark.parametrize("damage", [corrupt, remove_file])
def test_unreadable_partitions_are_reported_lost_and_the_others_move(
    damage: Callable[[BlockStore], None], tmp_path: Path
) -> None:
    registry = registry_that_loses_nobody()
    with rows_on_the_first(registry, tmp_path) as (metadata, (first, *others), shuffle):
        damage(first.store)
        assert_ends(drain(first, metadata))
        places = {location for (location,) in shuffle.placement()}
        assert places == {server.location for server in others}
        assert shuffle.health().lost_maps == [0]
        kept = [shuffle.reader(partition) for partition in range(PARTITIONS) if partition != 3]
        rows = sum(piece.num_rows for reader in kept for piece in reader)
        assert 0 < rows < 1_000
        with pytest.raises(MapOutputLostError):
            list(shuffle.reader(3))
        write(shuffle, attempt=1)
        assert numbers(shuffle) == Counter(range(1_000))


def test_a_metadata_server_that_restarts_is_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decommission, "_RETRY_FOR_S", hang_s())
    registry = registry_that_loses_nobody()
    with rows_on_the_first(registry, tmp_path) as (metadata, (first, *_), shuffle):
        with FlakyTransport(metadata) as between:
            first.membership.drain()
            between.cut_off()
            thread = running(Decommission(first.store, first.membership, between.location))
            await_that(lambda: between.counts().refused_connections >= 2, "calls that fail")
            assert thread.is_alive()
            between.heal()
            assert_ends(thread)
        assert all(places != (first.location,) for places in shuffle.placement())


def test_a_metadata_server_that_is_gone_is_asked_about_one_shuffle_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each that is asked about takes as long as a restart of the metadata server may take."""
    monkeypatch.setattr(decommission, "_RETRY_FOR_S", 0.1)
    asked: list[str] = []

    class Asked(MetadataClient):
        def plan_move(self, shuffle_id: str, origin: str) -> PlanMoveResponse:
            asked.append(shuffle_id)
            return super().plan_move(shuffle_id, origin)

    monkeypatch.setattr(decommission, "MetadataClient", Asked)
    registry = registry_that_loses_nobody()
    with rows_on_the_first(registry, tmp_path) as (_, (first, *_), _):
        first.membership.open("drained")
        for number in range(5):
            first.store.open(f"another-{number}", PARTITIONS)
        Decommission(first.store, first.membership, "grpc+tcp://127.0.0.1:1").run()
        assert len(asked) == 1
