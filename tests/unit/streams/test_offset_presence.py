"""The offsets of rows: which are there, which are missing, doubled, or not recorded."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from mrflight.sources.kafka.topic_offsets import Partition
from mrflight.streams.offset_presence import (
    MAX_EXAMPLES,
    FirstOffsets,
    OffsetPresence,
    OffsetsOutside,
    Strays,
    by_partition,
    windows,
)

ZERO: Partition = ("t", 0)
ONE: Partition = ("t", 1)


def places(*rows: tuple[str | None, int | None, int | None]) -> pa.RecordBatch:
    topics, numbers, offsets = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.record_batch(
        {
            "_topic": pa.array(topics, pa.string()),
            "_partition": pa.array(numbers, pa.int32()),
            "_offset": pa.array(offsets, pa.int64()),
        }
    )


def of(place: Partition, *offsets: int) -> pa.RecordBatch:
    return places(*((*place, each) for each in offsets))


def test_missing_offsets_are_ranges() -> None:
    presence = OffsetPresence({ZERO: (10, 20), ONE: (0, 3)})
    presence.add(of(ZERO, 12, 13, 17, 25, 3))
    presence.add(of(ONE, 2, 0, 1))
    presence.add(of(("other", 0), 1))
    assert presence.missing() == {ZERO: [(10, 12), (14, 17), (18, 20)], ONE: []}
    assert presence.twice == Strays(0, ())


def test_doubled_offsets_are_found_within_a_batch_and_between_batches() -> None:
    presence = OffsetPresence({ZERO: (0, 10)})
    presence.add(of(ZERO, 3, 1, 3))
    presence.add(of(ZERO, 1, 4))
    assert presence.twice == Strays(2, (("t", 0, 3), ("t", 0, 1)))


def test_only_some_examples_are_kept() -> None:
    outside = OffsetsOutside({ZERO: (5, 10)})
    outside.add(of(ZERO, *range(20)))
    outside.add(of(ONE, 7))
    assert outside.strays.count == 16
    assert outside.strays.examples == tuple(("t", 0, at) for at in range(MAX_EXAMPLES))


def test_what_explains_offsets_is_counted_once() -> None:
    presence = OffsetPresence({ZERO: (0, 5)})
    presence.add(of(ZERO, 0, 1))
    assert presence.explain(of(ZERO, 1, 2, 2, 3, 9)) == 2
    assert presence.explain(of(ONE, 4)) == 0
    assert presence.missing() == {ZERO: [(4, 5)]}


def test_first_offsets() -> None:
    first = FirstOffsets()
    first.add(of(ZERO, 7, 5))
    first.add(of(ZERO, 6))
    first.add(of(ONE, 9))
    assert first.found == {ZERO: 5, ONE: 9}


def test_rows_without_a_place_are_left_out() -> None:
    batch = places(("t", 0, 1), (None, None, None), ("u", 3, 2))
    found = {place: offsets.tolist() for place, offsets in by_partition(batch).items()}
    assert found == {("t", 0): [1], ("u", 3): [2]}
    assert by_partition(places()) == {}


BOUNDS = st.dictionaries(
    st.tuples(st.just("t"), st.integers(0, 4)),
    st.tuples(st.integers(0, 50), st.integers(0, 50)),
    max_size=4,
)


@given(BOUNDS, st.integers(1, 30))
def test_windows_have_each_offset_once(bounds: dict[Partition, tuple[int, int]], size: int) -> None:
    found = windows(bounds, size)
    counts = [sum(stop - start for start, stop in each.values()) for each in found]
    assert max(counts) <= size
    assert all(count == size for count in counts[:-1])
    seen = [(p, at) for each in found for p, bound in each.items() for at in range(*bound)]
    wanted = [(p, at) for p, bound in bounds.items() for at in range(*bound)]
    assert seen == wanted
