"""A data server's membership: nothing that takes long delays its heartbeats."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from mrflight.servers.listening import Listening
from mrflight.servers.membership import Membership
from mrflight.servers.metadata import MetadataServer

import mrflight
from mrflight.config.identity import ClientOptions
from mrflight.errors import ServerUnavailableError
from mrflight.shuffle.metadata.registry import Registry
from mrflight.shuffle.store.block_store import BlockStore
from mrflight.system.deadlines import Timeouts
from mrflight.system.scratch import ScratchFolder
from tests.support.clusters.near_cluster import NearDataServer, near_data_servers, near_metadata
from tests.support.clusters.registries import TIMEOUT_S, Clock
from tests.support.commands.threads import run_threads
from tests.support.faults.transport import FlakyTransport
from tests.support.suite.messages import refused
from tests.support.suite.waiting import await_that, hang_s


class StoreOfASlowDisk(BlockStore):
    """A piece of each shuffle is being written until `end`, and removing files waits for it."""

    def open(self, shuffle_id: str, partitions: int, token: str = "") -> None:
        super().open(shuffle_id, partitions, token)
        with self._changed:
            self._spiller._writing = self._shuffles[shuffle_id]

    def end(self) -> None:
        with self._changed:
            self._spiller._writing = None
            self._changed.notify_all()


@pytest.fixture
def registry(clock: Clock) -> Registry:
    return Registry(clock, TIMEOUT_S)


@pytest.fixture
def metadata(registry: Registry) -> Iterator[str]:
    with near_metadata(registry) as location:
        yield location


def assert_it_beats(registry: Registry, near: NearDataServer, clock: Clock) -> None:
    """It stays a member for twice the timeout, as its heartbeats come in time."""
    for _ in range(4):
        clock.now_s += TIMEOUT_S / 2
        await_that(
            lambda: registry._state.servers[near.location].last_seen_s == clock.now_s, "a heartbeat"
        )
        assert registry.incarnation(near.location) is not None


def test_heartbeats_continue_while_files_are_removed(
    registry: Registry, clock: Clock, metadata: str, tmp_path: Path
) -> None:
    with near_data_servers(metadata, 1, tmp_path, StoreOfASlowDisk) as (near,):
        with mrflight.connect(metadata) as client:
            client.create_shuffle("dropped", 3)
        near.membership.open("dropped")
        registry.drop_shuffle("dropped")  # the server learns of it at its next heartbeat
        await_that(lambda: near.store.shuffles() == [], "the shuffle to be dropped")
        assert_it_beats(registry, near, clock)
        assert isinstance(near.store, StoreOfASlowDisk)
        near.store.end()


def test_a_server_that_was_declared_lost_is_back_before_its_files_are_gone(
    registry: Registry, clock: Clock, metadata: str, tmp_path: Path
) -> None:
    with near_data_servers(metadata, 1, tmp_path, StoreOfASlowDisk) as (near,):
        with mrflight.connect(metadata) as client:
            client.create_shuffle("given-up", 3)
        near.membership.open("given-up")
        registry.unregister_server(near.location)
        await_that(lambda: registry.incarnation(near.location) is not None, "it to be back")
        assert near.store.shuffles() == []
        assert_it_beats(registry, near, clock)
        assert isinstance(near.store, StoreOfASlowDisk)
        near.store.end()


def test_heartbeats_continue_while_a_request_waits_for_metadata(
    registry: Registry, clock: Clock, metadata: str, tmp_path: Path
) -> None:
    with near_data_servers(metadata, 1, tmp_path) as (near,):
        with mrflight.connect(metadata) as client:
            client.create_shuffle("dropped", 3)
        near.membership.open("dropped")
        with near.membership._metadata_lock:  # as during a call over a connection that was cut
            registry.drop_shuffle("dropped")
            await_that(lambda: near.store.shuffles() == [], "the shuffle to be dropped")
            assert_it_beats(registry, near, clock)


def test_a_draining_server_that_was_declared_lost_takes_nothing_when_it_is_back(
    registry: Registry, metadata: str, tmp_path: Path
) -> None:
    with near_data_servers(metadata, 2, tmp_path) as (near, other):
        near.membership.drain()
        registry.unregister_server(near.location)
        # A heartbeat has registered it again.
        await_that(lambda: len(registry.overview.servers()) == 2, "it to be back")
        await_that(lambda: registry._state.servers[near.location].is_draining, "it to drain")
        assert registry.put_shuffle("late", 2) == [(other.location,)] * 2


def test_a_drain_whose_report_was_lost_is_reported_again(
    registry: Registry, metadata: str, tmp_path: Path
) -> None:
    with (
        FlakyTransport(metadata) as between,
        near_data_servers(between.location, 1, tmp_path) as (near,),
    ):
        between.cut_off()
        near.membership.drain()
        assert not registry._state.servers[near.location].is_draining
        between.heal()
        await_that(lambda: registry._state.servers[near.location].is_draining, "the report")


def test_requests_wait_for_a_metadata_server_at_the_same_time(tmp_path: Path) -> None:
    """While one retries, the others give up after the same time, and do not retry after it."""
    nowhere = "grpc+tcp://127.0.0.1:1"
    timeouts = Timeouts(call_s=hang_s(), reconnect_s=0.1)
    with ScratchFolder("spill", tmp_path) as scratch, BlockStore(2**20, scratch) as store:
        membership = Membership(store, nowhere, ClientOptions(timeouts))
        raised = []

        def ask() -> None:
            with refused(ServerUnavailableError) as late:
                membership.open("clicks")
            raised.append(late.value.location)

        with membership._metadata_lock:  # as during a call
            run_threads([ask] * 8)
        assert raised == [nowhere] * 8
        with pytest.raises(ServerUnavailableError) as unreachable:
            membership.open("clicks")
        assert unreachable.value.location == nowhere


def test_an_unreachable_metadata_server_is_logged_once_and_when_it_answers(
    registry: Registry, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "mrflight.servers.membership")

    def messages(level: int) -> list[str]:
        return [record.message for record in caplog.records if record.levelno == level]

    server = MetadataServer(Listening("grpc+tcp://127.0.0.1:0"), registry)
    location = f"grpc+tcp://127.0.0.1:{server.port}"
    try:
        with near_data_servers(location, 1, tmp_path):
            server.shutdown()
            await_that(lambda: len(messages(logging.DEBUG)) >= 2, "two more failures")
            (warning,) = messages(logging.WARNING)
            assert warning.startswith("heartbeat: grpc")
            assert messages(logging.INFO) == []
            server = MetadataServer(Listening(location), registry)
            await_that(lambda: messages(logging.INFO), "an answer")
            assert messages(logging.INFO) == [f"the metadata server at {location} answers again"]
            assert messages(logging.WARNING) == [warning]
    finally:
        server.shutdown()
