"""Draining while other servers fail: what can be moved is moved, wherever it was going first."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from mrflight.servers.draining import Draining

import mrflight
from mrflight.errors import PlacementChangedError
from mrflight.shuffle.registry import Registry
from mrflight.testing.transport import FlakyTransport
from tests.support.near_cluster import NearDataServer, near_data_servers, near_metadata

PARTITIONS = 12
HEARTBEAT_TIMEOUT_S = 1.5
ENDS_IN_S = 15.0


class RegistryOfOneRefusal(Registry):
    """Refuses the first move, as where a commit came in between; then ``refused`` is set."""

    def __init__(self) -> None:
        super().__init__(time.monotonic, HEARTBEAT_TIMEOUT_S)
        self.refused = threading.Event()
        self.go_on = threading.Event()

    def move(
        self, shuffle_id: str, moves: dict[int, str], origin: str, epoch: int, version: int
    ) -> None:
        if not self.refused.is_set():
            self.refused.set()
            self.go_on.wait(ENDS_IN_S)
            raise PlacementChangedError("as where a commit came in between")
        super().move(shuffle_id, moves, origin, epoch, version)


@contextmanager
def rows_on_the_first(
    registry: Registry, folder: Path
) -> Iterator[tuple[str, list[NearDataServer], mrflight.Shuffle]]:
    """Three servers, of which the first has all rows."""
    with near_metadata(registry) as metadata, near_data_servers(metadata, 1, folder) as first:
        with mrflight.connect(metadata) as client:
            shuffle = client.create_shuffle("drained", PARTITIONS)
        with shuffle.writer(0, key=["k"]) as out:
            out.write(pa.record_batch({"k": pa.array(range(1_000))}))
        with near_data_servers(metadata, 2, folder) as others:
            yield metadata, first + others, shuffle


def drain(server: NearDataServer, metadata: str) -> threading.Thread:
    server.membership.drain()
    draining = Draining(server.store, server.membership, metadata)
    thread = threading.Thread(target=draining.run, daemon=True)
    thread.start()
    return thread


def assert_ends(draining: threading.Thread) -> None:
    draining.join(ENDS_IN_S)
    assert not draining.is_alive()


def assert_all_is_at(server: NearDataServer, shuffle: mrflight.Shuffle) -> None:
    assert shuffle.placement() == [(server.location,)] * PARTITIONS
    read = Counter(
        number
        for partition in range(PARTITIONS)
        for piece in shuffle.reader(partition)
        for number in piece["k"].to_pylist()
    )
    assert read == Counter(range(1_000))


def test_a_target_that_is_gone_when_all_was_copied_is_replaced(tmp_path: Path) -> None:
    registry = RegistryOfOneRefusal()
    with rows_on_the_first(registry, tmp_path) as (metadata, (first, second, third), shuffle):
        draining = drain(first, metadata)
        assert registry.refused.wait(ENDS_IN_S)
        second.die()
        registry.unregister_server(second.location)
        registry.go_on.set()
        assert_ends(draining)
        assert_all_is_at(third, shuffle)


def test_a_target_that_fails_spoils_no_other(tmp_path: Path) -> None:
    registry = Registry(time.monotonic, HEARTBEAT_TIMEOUT_S)
    with rows_on_the_first(registry, tmp_path) as (metadata, (first, second, third), shuffle):
        second.die()  # and is still taken for a target until it has been silent for long
        assert_ends(drain(first, metadata))
        assert_all_is_at(third, shuffle)


def test_a_target_that_lives_and_takes_nothing_is_done_without(tmp_path: Path) -> None:
    registry = Registry(time.monotonic, 60.0)
    with rows_on_the_first(registry, tmp_path) as (metadata, (first, *others), shuffle):
        refusing, other = sorted(others, key=lambda server: server.location)
        refusing.server.shutdown()  # its heart goes on
        assert_ends(drain(first, metadata))
        assert_all_is_at(other, shuffle)


def test_a_metadata_server_that_restarts_is_waited_for(tmp_path: Path) -> None:
    registry = Registry(time.monotonic, 60.0)
    with rows_on_the_first(registry, tmp_path) as (metadata, (first, *_), shuffle):
        with FlakyTransport(metadata) as between:
            first.membership.drain()
            between.cut_off()
            draining = Draining(first.store, first.membership, between.location)
            thread = threading.Thread(target=draining.run, daemon=True)
            thread.start()
            time.sleep(1.5)
            assert thread.is_alive()
            between.heal()
            assert_ends(thread)
        assert all(places != (first.location,) for places in shuffle.placement())


def test_a_metadata_server_that_is_gone_is_not_waited_for_long(tmp_path: Path) -> None:
    registry = Registry(time.monotonic, 60.0)
    with rows_on_the_first(registry, tmp_path) as (_, (first, *_), _):
        first.membership.open("drained")
        for number in range(5):
            first.store.open(f"another-{number}", PARTITIONS)
        began = time.monotonic()
        Draining(first.store, first.membership, "grpc+tcp://127.0.0.1:1").run()
        assert time.monotonic() - began < 10.0
