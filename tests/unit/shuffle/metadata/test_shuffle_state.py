"""At most one attempt of each map counts for a partition, whatever was lost in between."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mrflight.ids import MapAttempt
from mrflight.shuffle.metadata.commit_log import NEVER, hash_output
from mrflight.shuffle.metadata.events import PartitionsPlaced, ShuffleCreated
from mrflight.shuffle.metadata.shuffle_state import ShuffleState
from mrflight.shuffle.wire.partition_info import MapCommit
from tests.support.clusters.registries import commit_message
from tests.support.suite.examples import some_of

PARTITIONS = 3
FIRST = MapAttempt(0, 0, "first")
SECOND = MapAttempt(0, 1, "second")


def new_state() -> ShuffleState:
    event = ShuffleCreated("x", "t", 1, None, ["a", "b"], [[0], [1], [0, 1]])
    return ShuffleState.create(event, now_s=5.0)


def apply_commit(
    state: ShuffleState, source: MapAttempt, version: int, rows: list[int] | None = None
) -> None:
    rows = rows or [1, 2, 3]
    commit = commit_message(source, rows, version, "x")
    counts = np.array(rows), np.array(commit.size_bytes)
    state.apply_commit(state.commit_event(commit, source, *counts))


def apply_loss(state: ShuffleState, *lost: int) -> None:
    state.apply_placed(PartitionsPlaced("x", list(lost), [["b"]] * len(lost), list(lost)))


def test_a_shuffle_has_the_values_of_its_event() -> None:
    state = new_state()
    assert state.placement.locations == [("a",), ("b",), ("a", "b")]
    assert (state.id, state.token, state.replicas, state.renewed_s) == ("x", "t", 1, 5.0)
    assert state.placement.servers() == ["a", "b"]
    assert (state.placement.version, state.lost_maps(), state.missing_partitions(0)) == (
        0,
        [],
        [0, 1, 2],
    )


def test_a_commit_counts_after_since_and_up_to_until() -> None:
    commit = MapCommit(FIRST, since=1, until=3)
    assert [commit.counts_for(generation) for generation in range(5)] == [
        *(False, False),
        *(True, True),
        False,
    ]


def test_the_intervals_of_a_map_are_adjacent() -> None:
    state = new_state()
    apply_commit(state, FIRST, 0)
    apply_loss(state, 1)
    apply_loss(state, 0, 1)
    apply_commit(state, SECOND, 2)
    assert state.log.commits == [MapCommit(FIRST, NEVER, 0), MapCommit(SECOND, 0, 2)]
    assert state.log.latest_version(0) == 2
    assert state.log.latest_version(1) == NEVER
    assert state.placement.generations.tolist() == [2, 2, 0]
    assert state.log.rows.tolist() == [1, 2, 3]


def test_a_loss_removes_the_rows_of_its_partitions() -> None:
    state = new_state()
    apply_commit(state, FIRST, 0)
    apply_loss(state, 1)
    assert (state.log.rows.tolist(), state.log.size_bytes.tolist()) == ([1, 0, 3], [10, 0, 30])
    assert (state.lost_maps_of(0), state.lost_maps_of(1), state.lost_maps()) == ([], [0], [0])
    assert state.missing_partitions(0) == [1]
    info = state.info(1)
    assert (info.locations, info.epoch, info.rows, info.generation) == (("b",), 1, 0, 1)


def test_the_committed_attempt_is_found() -> None:
    state = new_state()
    assert state.committed_attempt(FIRST, 0) is None
    apply_commit(state, FIRST, 0)
    assert state.committed_attempt(FIRST, 0) == state.committed_attempt(SECOND, 0) == FIRST
    apply_loss(state, 1)
    assert state.committed_attempt(SECOND, 0) == FIRST
    assert state.committed_attempt(SECOND, 1) is None
    assert state.committed_attempt(FIRST, 1) == FIRST


def test_losing_a_replica_keeps_the_rows() -> None:
    state = new_state()
    apply_commit(state, FIRST, 0)
    state.apply_placed(PartitionsPlaced("x", [2], [["b"]], [], avoided=["a"]))
    assert (state.placement.version, state.lost_maps(), state.placement.avoided) == (1, [], {"a"})
    assert state.log.rows.tolist() == [1, 2, 3]
    assert (state.placement.generations.tolist(), state.placement.moved_in.tolist()) == (
        [0, 0, 0],
        [0, 0, 0],
    )


def test_only_equal_rows_and_routing_have_the_same_hash() -> None:
    counts = [np.array(rows) for rows in ([1, 2, 3], [1, 2, 4], [2, 1, 3], [1, 2], [1, 2, 3, 0])]
    assert hash_output(counts[0], "r") == hash_output(counts[0].copy(), "r")
    assert len({hash_output(rows, routing) for rows in counts for routing in ("", "r", "s")}) == 15


steps = st.lists(
    st.one_of(
        st.sets(st.integers(0, PARTITIONS - 1), min_size=1),  # lost partitions
        st.tuples(st.integers(0, 1), st.integers(0, 6)),  # a map, and how old its version is
    ),
    max_size=25,
)


@settings(max_examples=some_of(300), derandomize=True)
@given(steps)
def test_each_map_counts_once_after_any_losses_and_commits(
    history: list[set[int] | tuple[int, int]],
) -> None:
    """The sums are those of the attempts that count; all other partitions are missing."""
    state = new_state()
    for position, step in enumerate(history):
        if isinstance(step, set):
            apply_loss(state, *sorted(step))
            continue
        map_id, back = step
        version = max(state.placement.version - back, 0)
        source = MapAttempt(map_id, 0, f"w{position}")
        if state.committed_attempt(source, version) is None:
            apply_commit(state, source, version, [map_id + p + 1 for p in range(PARTITIONS)])
        for partition, generation in enumerate(state.placement.generations.tolist()):
            counting = [c.source.map_id for c in state.log.commits if c.counts_for(generation)]
            assert len(counting) == len(set(counting))
            assert state.log.rows[partition] == sum(one + partition + 1 for one in counting)
            missing = {one for one in (0, 1) if partition in state.missing_partitions(one)}
            assert missing == {0, 1} - set(counting)
            assert set(state.lost_maps_of(partition)) == missing & state.log.latest.keys()
