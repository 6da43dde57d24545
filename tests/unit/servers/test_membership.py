"""A data server's membership: nothing that takes long delays its heartbeats."""

from __future__ import annotations

import logging
import time
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
from tests.support.clusters.near_cluster import (
    NearDataServer,
    near_data_servers,
    near_metadata,
    wait_until,
)
from tests.support.commands.threads import run_threads
from tests.support.faults.transport import FlakyTransport

HEARTBEAT_TIMEOUT_S = 2.0


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
def registry() -> Registry:
    return Registry(time.monotonic, HEARTBEAT_TIMEOUT_S)


@pytest.fixture
def metadata(registry: Registry) -> Iterator[str]:
    with near_metadata(registry) as location:
        yield location


def assert_it_beats(registry: Registry, near: NearDataServer) -> None:
    until = time.monotonic() + 2 * HEARTBEAT_TIMEOUT_S
    while time.monotonic() < until:
        assert registry.incarnation(near.location) is not None
        time.sleep(0.1)  # between two looks; the server must be there at each


def test_heartbeats_continue_while_files_are_removed(
    registry: Registry, metadata: str, tmp_path: Path
) -> None:
    with near_data_servers(metadata, 1, tmp_path, StoreOfASlowDisk) as (near,):
        with mrflight.connect(metadata) as client:
            client.create_shuffle("dropped", 3)
        near.membership.open("dropped")
        registry.drop_shuffle("dropped")  # the server learns of it at its next heartbeat
        wait_until(lambda: near.store.shuffles() == [])
        assert_it_beats(registry, near)
        assert isinstance(near.store, StoreOfASlowDisk)
        near.store.end()


def test_a_server_that_was_declared_lost_is_back_before_its_files_are_gone(
    registry: Registry, metadata: str, tmp_path: Path
) -> None:
    with near_data_servers(metadata, 1, tmp_path, StoreOfASlowDisk) as (near,):
        with mrflight.connect(metadata) as client:
            client.create_shuffle("given-up", 3)
        near.membership.open("given-up")
        registry.unregister_server(near.location)
        given_up = time.monotonic()
        wait_until(lambda: registry.incarnation(near.location) is not None)
        assert time.monotonic() - given_up < HEARTBEAT_TIMEOUT_S
        assert near.store.shuffles() == []
        assert_it_beats(registry, near)
        assert isinstance(near.store, StoreOfASlowDisk)
        near.store.end()


def test_heartbeats_continue_while_a_request_waits_for_metadata(
    registry: Registry, metadata: str, tmp_path: Path
) -> None:
    with near_data_servers(metadata, 1, tmp_path) as (near,):
        with mrflight.connect(metadata) as client:
            client.create_shuffle("dropped", 3)
        near.membership.open("dropped")
        with near.membership._metadata_lock:  # as during a call over a connection that was cut
            registry.drop_shuffle("dropped")
            wait_until(lambda: near.store.shuffles() == [])
            assert_it_beats(registry, near)


def test_a_draining_server_that_was_declared_lost_takes_nothing_when_it_is_back(
    registry: Registry, metadata: str, tmp_path: Path
) -> None:
    with near_data_servers(metadata, 2, tmp_path) as (near, other):
        near.membership.drain()
        registry.unregister_server(near.location)
        # A heartbeat has registered it again.
        wait_until(lambda: len(registry.overview.servers()) == 2)
        wait_until(lambda: registry._state.servers[near.location].is_draining)
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
        wait_until(lambda: registry._state.servers[near.location].is_draining)


def test_requests_wait_for_a_metadata_server_at_the_same_time(tmp_path: Path) -> None:
    retry_for_s = 1.0
    nowhere = "grpc+tcp://127.0.0.1:1"
    with ScratchFolder("spill", tmp_path) as scratch, BlockStore(2**20, scratch) as store:
        membership = Membership(
            store, nowhere, ClientOptions(Timeouts(call_s=1.0, reconnect_s=retry_for_s))
        )
        raised = []

        def ask() -> None:
            try:
                membership.open("clicks")
            except ServerUnavailableError as error:
                raised.append(error.location)

        began = time.monotonic()
        run_threads([ask] * 8)
        assert raised == [nowhere] * 8
        assert time.monotonic() - began < 4 * retry_for_s


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
            wait_until(lambda: len(messages(logging.DEBUG)) >= 2)
            (warning,) = messages(logging.WARNING)
            assert warning.startswith("heartbeat: grpc")
            assert messages(logging.INFO) == []
            server = MetadataServer(Listening(location), registry)
            wait_until(lambda: messages(logging.INFO) != [])
            assert messages(logging.INFO) == [f"the metadata server at {location} answers again"]
            assert messages(logging.WARNING) == [warning]
    finally:
        server.shutdown()
