"""A shuffle that has the name of one that was dropped: what was sent to the first is not in it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import mrflight
from mrflight.errors import ShuffleNotFoundError
from mrflight.shuffle.metadata.registry import Registry
from tests.support.near_cluster import (
    NearDataServer,
    near_data_servers,
    near_metadata,
    wait_until,
)

ROWS = pa.record_batch({"k": pa.array(range(1_000))})
OTHERS = pa.record_batch({"k": pa.array(range(5_000, 7_000))})


@pytest.fixture
def registry() -> Registry:
    return Registry(time.monotonic, 60.0)


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


def without_heartbeats(near: NearDataServer) -> None:
    """The server hears of nothing but what it asks."""
    near.membership._stopping.set()
    near.membership._heartbeat_thread.join()


def test_a_server_that_was_not_told_makes_way_for_the_next_one(
    registry: Registry, client: mrflight.Cluster, near: NearDataServer
) -> None:
    without_heartbeats(near)
    write(client.create_shuffle("again", 2), ROWS)
    registry.drop_shuffle("again")  # as when its lease ends
    new = client.create_shuffle("again", 8)
    write(new, OTHERS)
    assert read(new) == list(range(5_000, 7_000))
    assert near.store.tokens() == {"again": new.token}


def test_who_opens_the_next_one_is_not_given_what_another_thread_opens_late(
    registry: Registry,
    client: mrflight.Cluster,
    near: NearDataServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That had asked for it before it was dropped."""
    without_heartbeats(near)
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


def test_a_drop_that_comes_late_drops_no_other(
    registry: Registry, client: mrflight.Cluster, near: NearDataServer
) -> None:
    old = client.create_shuffle("again", 2)
    write(old, ROWS)
    registry.drop_shuffle("again")
    new = client.create_shuffle("again", 2)
    write(new, OTHERS)
    near.membership.forget("again", old.token)
    assert read(new) == list(range(5_000, 7_000))


def test_what_a_heartbeat_was_told_to_drop_is_not_the_next_one(
    registry: Registry, client: mrflight.Cluster, near: NearDataServer
) -> None:
    """Its answer was under way while the next one was made, and written."""
    without_heartbeats(near)
    heartbeats = near.membership._heartbeats
    answered, is_made = threading.Event(), threading.Event()
    ask = heartbeats.heartbeat

    def slow(held: object) -> object:
        answer = ask(held)  # type: ignore[arg-type]
        answered.set()
        assert is_made.wait(20.0)
        return answer

    write(client.create_shuffle("again", 2), ROWS)
    registry.drop_shuffle("again")
    heartbeats.heartbeat = slow  # type: ignore[method-assign,assignment]
    beat = threading.Thread(target=near.membership._send_heartbeat)
    beat.start()
    assert answered.wait(20.0)
    new = client.create_shuffle("again", 2)
    write(new, OTHERS)
    is_made.set()
    beat.join(20.0)
    assert read(new) == list(range(5_000, 7_000))


def test_a_heartbeat_is_told_to_drop_what_has_the_name_of_another(
    registry: Registry, client: mrflight.Cluster, near: NearDataServer
) -> None:
    write(client.create_shuffle("again", 2), ROWS)
    registry.drop_shuffle("again")
    client.create_shuffle("again", 2)
    wait_until(lambda: near.store.shuffles() == [])


def test_a_late_writer_is_refused_by_the_server_of_the_next_one(
    registry: Registry, client: mrflight.Cluster, near: NearDataServer
) -> None:
    old = client.create_shuffle("again", 2)
    late = old.writer(0, key=["k"])
    registry.drop_shuffle("again")
    new = client.create_shuffle("again", 2)
    write(new, OTHERS, map_id=1)
    late.write(ROWS)
    with pytest.raises(ShuffleNotFoundError, match="another one has its name now"):
        late.commit()
    late.abort()
    assert read(new) == list(range(5_000, 7_000))
    assert near.store.stats().blocks == 2
