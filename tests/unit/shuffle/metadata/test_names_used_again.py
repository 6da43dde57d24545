"""A shuffle with the name of a dropped one has none of the rows that were sent to the first."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import mrflight
from mrflight.errors import ShuffleNotFoundError
from mrflight.shuffle.metadata.registry import Registry
from tests.support.clusters.near_cluster import (
    NearDataServer,
    near_data_servers,
    near_metadata,
)
from tests.support.clusters.registries import TIMEOUT_S, Clock
from tests.support.commands.threads import await_thread
from tests.support.suite.messages import refused
from tests.support.suite.waiting import await_that, hang_s

ROWS = pa.record_batch({"k": pa.array(range(1_000))})
OTHERS = pa.record_batch({"k": pa.array(range(5_000, 7_000))})


@pytest.fixture
def registry() -> Registry:
    return Registry(Clock(), TIMEOUT_S)


@pytest.fixture
def client(registry: Registry) -> Iterator[mrflight.Cluster]:
    with near_metadata(registry) as metadata, mrflight.connect(metadata) as client:
        yield client


@pytest.fixture
def near(client: mrflight.Cluster, tmp_path: Path) -> Iterator[NearDataServer]:
    with near_data_servers(client.location, 1, tmp_path) as (near,):
        yield near


def write(shuffle: mrflight.Shuffle, rows: pa.RecordBatch, map_id: int = 0) -> None:
    with shuffle.writer(map_id, key=["k"]) as out:
        out.write(rows)


def read(shuffle: mrflight.Shuffle) -> list[int]:
    batches = (rows for p in range(shuffle.partitions) for rows in shuffle.reader(p))
    return sorted(key for rows in batches for key in rows["k"].to_pylist())


def stop_heartbeats(near: NearDataServer) -> None:
    """Stop the heartbeats of a data server, so that it learns only from its own requests."""
    near.membership._stopping.set()
    near.membership._heartbeat_thread.join()


def test_a_server_that_missed_the_drop_replaces_the_shuffle(
    registry: Registry, client: mrflight.Cluster, near: NearDataServer
) -> None:
    stop_heartbeats(near)
    write(client.create_shuffle("again", 2), ROWS)
    registry.drop_shuffle("again")  # without telling the data server, as when a lease ends
    new = client.create_shuffle("again", 8)
    write(new, OTHERS)
    assert read(new) == list(range(5_000, 7_000))
    assert near.store.tokens() == {"again": new.token}


def test_a_late_open_of_the_first_shuffle_does_not_replace_the_second(
    registry: Registry,
    client: mrflight.Cluster,
    near: NearDataServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another thread had asked for the first shuffle before it was dropped."""
    stop_heartbeats(near)
    old = client.create_shuffle("again", 2)
    registry.drop_shuffle("again")
    new = client.create_shuffle("again", 8)
    describe = near.membership._metadata.describe_shuffle

    def meanwhile(shuffle_id: str, token: str = "") -> object:
        answer = describe(shuffle_id, token=token)
        near.store.open("again", 2, old.token)
        return answer

    with monkeypatch.context() as late:
        late.setattr(near.membership._metadata, "describe_shuffle", meanwhile)
        near.membership.open("again", new.token)
    assert near.store.tokens() == {"again": new.token}


def test_a_late_drop_does_not_drop_the_second_shuffle(
    registry: Registry, client: mrflight.Cluster, near: NearDataServer
) -> None:
    old = client.create_shuffle("again", 2)
    write(old, ROWS)
    registry.drop_shuffle("again")
    new = client.create_shuffle("again", 2)
    write(new, OTHERS)
    near.membership.forget("again", old.token)
    assert read(new) == list(range(5_000, 7_000))


def test_a_late_heartbeat_answer_does_not_drop_the_second_shuffle(
    registry: Registry, client: mrflight.Cluster, near: NearDataServer
) -> None:
    """The answer is delayed until the second shuffle has been created and written."""
    stop_heartbeats(near)
    heartbeats = near.membership._heartbeats
    answered, is_created = threading.Event(), threading.Event()
    ask = heartbeats.heartbeat

    def slow(held: object) -> object:
        answer = ask(held)  # type: ignore[arg-type]
        answered.set()
        assert is_created.wait(hang_s())
        return answer

    write(client.create_shuffle("again", 2), ROWS)
    registry.drop_shuffle("again")
    heartbeats.heartbeat = slow  # type: ignore[method-assign,assignment]
    beat = threading.Thread(target=near.membership._send_heartbeat)
    beat.start()
    assert answered.wait(hang_s())
    new = client.create_shuffle("again", 2)
    write(new, OTHERS)
    is_created.set()
    await_thread(beat)
    assert read(new) == list(range(5_000, 7_000))


def test_a_heartbeat_answer_drops_the_first_shuffle_although_its_name_is_in_use(
    registry: Registry, client: mrflight.Cluster, near: NearDataServer
) -> None:
    write(client.create_shuffle("again", 2), ROWS)
    registry.drop_shuffle("again")
    client.create_shuffle("again", 2)
    await_that(lambda: near.store.shuffles() == [], "the shuffle to be dropped")


def test_a_late_writer_of_the_first_shuffle_is_refused(
    registry: Registry, client: mrflight.Cluster, near: NearDataServer
) -> None:
    old = client.create_shuffle("again", 2)
    late = old.writer(0, key=["k"])
    registry.drop_shuffle("again")
    new = client.create_shuffle("again", 2)
    write(new, OTHERS, map_id=1)
    late.write(ROWS)
    with refused(ShuffleNotFoundError):
        late.commit()
    late.abort()
    assert read(new) == list(range(5_000, 7_000))
    assert near.store.stats().blocks == 2
