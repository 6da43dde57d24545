"""One of many attempts is read, and the servers hold nothing of the others."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyarrow import flight

import mrflight
from mrflight.errors import AttemptSupersededError, MapOutputMissingError, ShuffleNotFoundError
from tests.support.clusters.numbered_rows import batch, held, numbers, stats
from tests.support.suite.messages import refused


def test_only_the_first_committed_attempt_is_read(cluster: mrflight.Cluster) -> None:
    shuffle = cluster.create_shuffle("attempts", partitions=4)
    with shuffle.writer(map_id=0, attempt=1, key=["url"]) as out:
        out.write(batch(0))
    before = held(shuffle)
    late = shuffle.writer(map_id=0, attempt=0, key=["url"])
    late.write(batch(5_000))
    with refused(AttemptSupersededError):
        late.commit()
    assert held(shuffle) == before
    assert numbers(shuffle, 4) == list(range(1_000))
    shuffle.drop()


@pytest.mark.parametrize(("start", "is_same"), [(0, True), (5_000, False)])
def test_a_late_attempt_knows_whether_the_first_sent_the_same(
    start: int, is_same: bool, cluster: mrflight.Cluster
) -> None:
    shuffle = cluster.create_shuffle("same", partitions=4)
    for attempt, first in ((1, 0), (0, start)):
        out = shuffle.writer(map_id=0, attempt=attempt, key=["url"])
        out.write(batch(first))
        if attempt == 1:
            out.commit()
    with pytest.raises(AttemptSupersededError):
        out.commit()
    assert out.winner_sent_the_same == is_same
    shuffle.drop()


def test_a_second_writer_of_a_committed_attempt_changes_nothing(cluster: mrflight.Cluster) -> None:
    shuffle = cluster.create_shuffle("again", partitions=4)
    with shuffle.writer(map_id=0, key=["url"]) as out:
        out.write(batch(0))
    before = held(shuffle)
    again = shuffle.writer(map_id=0, key=["url"])
    again.write(batch(0))
    again.commit()
    again.commit()
    with shuffle.writer(map_id=0, key=["url"]) as other:
        other.write(batch(5_000))  # the first attempt has won all the same
    raising = shuffle.writer(map_id=0, key=["url"])
    raising.write(batch(0))
    raising.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert held(shuffle) == before
    assert numbers(shuffle, 4) == list(range(1_000))
    shuffle.drop()


def test_blocks_of_a_dead_worker_are_dropped_and_the_winners_are_kept(
    cluster: mrflight.Cluster,
) -> None:
    shuffle = cluster.create_shuffle("twins", partitions=1)
    (info,) = shuffle.layout()[1]
    descriptor = flight.FlightDescriptor.for_path("twins", "0", "5", "1")
    with flight.FlightClient(info.locations[0]) as client:  # attempt 1, which is never committed
        writer, _ = client.do_put(descriptor, batch(0).schema)
        with writer:
            writer.write_batch(batch(0))
    stale = sum(held(shuffle))
    assert stale > 0
    shuffle.drop_stale_attempts(5, attempts=2, writer_id="")
    assert sum(held(shuffle)) == stale  # it may still win
    with shuffle.writer(5, 0, key=["url"], writer_id="w") as out:
        out.write(batch(7))
    both = sum(held(shuffle))
    shuffle.drop_stale_attempts(5, attempts=2, writer_id="w")
    assert sum(held(shuffle)) == both  # this writer's attempt 0 has won, and not 1
    shuffle.drop_stale_attempts(5, attempts=2, writer_id="")
    assert sum(held(shuffle)) == both - stale
    assert pa.Table.from_batches(shuffle.reader(0)).to_batches() == [batch(7)]
    shuffle.drop()


def test_an_attempt_that_raises_leaves_nothing(cluster: mrflight.Cluster) -> None:
    shuffle = cluster.create_shuffle("raises", partitions=4)
    out = shuffle.writer(map_id=0, key=["url"])
    for start in range(0, 1_000_000, 50_000):  # more blocks than may wait to be sent
        out.write(batch(start, 50_000))
    assert sum(held(shuffle)) > 0
    out.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert held(shuffle) == [0, 0, 0]
    assert list(shuffle.reader(0, maps=0)) == []
    shuffle.drop()


def test_a_reader_before_the_maps_gets_an_error(cluster: mrflight.Cluster) -> None:
    shuffle = cluster.create_shuffle("early", partitions=2)
    with refused(MapOutputMissingError):
        list(shuffle.reader(0))
    with pytest.raises(MapOutputMissingError, match="no map is committed"):
        shuffle.layout(maps=None)
    for map_id in (0, 0, 7):  # the repeated one counts once
        with shuffle.writer(map_id, key=["url"], writer_id="w") as out:
            out.write(batch(map_id))
        with pytest.raises(MapOutputMissingError, match=f"{1 + map_id // 7} of 3 maps are"):
            list(shuffle.reader(0, maps=3))
    with pytest.raises(MapOutputMissingError, match="2 of 3 maps"):
        shuffle.layout(maps=3)
    for maps in (2, 1, 0, None):
        read = [piece for p in range(2) for piece in shuffle.reader(p, maps=maps)]
        assert sum(len(piece) for piece in read) == 2 * len(batch(0))
    shuffle.drop()


def test_a_reused_name_does_not_bring_old_rows_back(cluster: mrflight.Cluster) -> None:
    for word in ("old", "new"):
        shuffle = cluster.create_shuffle("name", partitions=1)
        with shuffle.writer(map_id=0, key=["k"]) as out:
            out.write(pa.record_batch({"k": [word]}))
        assert [k for piece in shuffle.reader(0) for k in piece["k"].to_pylist()] == [word]
        if word == "old":  # dropped at the metadata server only
            with flight.FlightClient(cluster.location) as metadata:
                list(metadata.do_action(("drop_shuffle", b'{"id": "name"}')))
    shuffle.drop()


def test_a_writer_of_a_dropped_shuffle_commits_nothing_into_the_next_one_of_its_name(
    cluster: mrflight.Cluster,
) -> None:
    old = cluster.create_shuffle("again", partitions=2)
    late = old.writer(map_id=0, attempt=0, key=["url"])
    late.write(batch(0))
    old.drop()
    new = cluster.create_shuffle("again", partitions=2)
    for ask in (
        late.commit,
        old.health,
        old.placement,
        old.drop,
        lambda: old.writer(1, 0, ["url"]),
    ):
        with refused(ShuffleNotFoundError):
            ask()
    late.abort()
    with cluster.open_shuffle("again").writer(map_id=0, attempt=0, key=["url"]) as out:
        out.write(batch(5_000))
    assert numbers(new, 2) == list(range(5_000, 6_000))
    new.drop()


def test_a_dropped_shuffle_frees_all_and_refuses_late_blocks(cluster: mrflight.Cluster) -> None:
    shuffle = cluster.create_shuffle("dropped", partitions=3)
    with shuffle.writer(0, key=["url"]) as out:
        out.write(batch(0))
    _, partitions = shuffle.layout()
    late = shuffle.writer(1, key=["url"])
    late.write(batch(0))
    shuffle.drop()
    with pytest.raises(ShuffleNotFoundError, match="'dropped'"):
        late.commit()
    for location in {at for info in partitions for at in info.locations}:
        assert stats(location) == {"shuffles": 0, "blocks": 0, "size_bytes": 0}
