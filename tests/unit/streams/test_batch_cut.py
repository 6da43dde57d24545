"""A batch is bounded, leaves nothing out, and lets no partition wait for another."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mrflight.sources.kafka.topic_offsets import Partition
from mrflight.streams.batch_cut import BatchLimits, after, cut_batch, waiting

PARTITIONS = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 5))
OFFSETS = st.integers(0, 1000)
STATES = st.dictionaries(PARTITIONS, st.tuples(OFFSETS, OFFSETS), max_size=8)
"""The next offset of each partition, and how many events it has from there on."""

State = dict[Partition, tuple[int, int]]


def split(state: State) -> tuple[dict[Partition, int], dict[Partition, int]]:
    """Return the position, and the ends."""
    position = {each: start for each, (start, _) in state.items()}
    return position, {each: start + count for each, (start, count) in state.items()}


@given(STATES, st.integers(1, 3000))
def test_a_batch_is_as_large_as_it_may_be(state: State, most: int) -> None:
    position, ends = split(state)
    ranges = cut_batch(position, ends, most)
    assert sum(each.count for each in ranges) == min(most, waiting(position, ends))


@given(STATES, st.integers(1, 3000))
def test_ranges_begin_at_the_position_and_are_in_order(state: State, most: int) -> None:
    position, ends = split(state)
    ranges = cut_batch(position, ends, most)
    places = [(each.topic, each.partition) for each in ranges]
    assert places == sorted(set(places))
    for place, each in zip(places, ranges, strict=True):
        assert each.start == position[place] < each.stop <= ends[place]


@given(STATES, st.integers(1, 3000))
def test_no_partition_is_passed_over_for_a_larger_one(state: State, most: int) -> None:
    """What is left of one is left only if no other got more than a share beyond it."""
    position, ends = split(state)
    taken = {(each.topic, each.partition): each.count for each in cut_batch(position, ends, most)}
    cut = [each for each, (_, count) in state.items() if taken.get(each, 0) < count]
    for each in cut:
        assert max(taken.values()) <= taken.get(each, 0) + 1


@given(STATES, st.integers(1, 50))
def test_batches_come_to_the_ends(state: State, most: int) -> None:
    position, ends = split(state)
    left = waiting(position, ends)
    batches = 0
    while ranges := cut_batch(position, ends, most):
        position = after(position, ranges)
        batches += 1
    assert position == ends
    assert batches == -(-left // most)


@given(STATES)
def test_partitions_without_end_and_ends_behind_the_position_have_no_range(state: State) -> None:
    position, ends = split(state)
    behind = {each: start - 1 for each, start in position.items()}
    assert cut_batch(position, {}, 10) == cut_batch(position, behind, 10) == ()
    assert waiting(position, behind) == 0
    assert waiting(position, ends) == sum(count for _, count in state.values())


@given(st.integers(1, 10_000), st.integers(1, 1 << 30), st.floats(0.0, 1e9))
def test_limits_hold_whatever_the_size_of_an_event(rows: int, size: int, event: float) -> None:
    events = BatchLimits(rows, size).events(event)
    assert 1 <= events <= rows
    assert events == 1 or events * event <= size
