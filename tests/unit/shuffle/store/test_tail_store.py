"""A tail has ordered batches by partition, from what its table has to the watermark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from mrflight.errors import (
    AccessDeniedError,
    DeadlineExceededError,
    ProtocolError,
    SchemaMismatchError,
    TailBehindError,
    TailNotFoundError,
    TailTrimmedError,
)
from mrflight.shuffle.store import tail_store
from mrflight.shuffle.store.tail_partition import MAX_BEHIND
from mrflight.shuffle.store.tail_store import TailRows, TailStore
from mrflight.shuffle.wire.tail_protocol import (
    OFFSET_COLUMN,
    OpenTail,
    TailPut,
    TailRange,
    TailRead,
    TrimTail,
    reader_token,
)
from tests.support.suite.messages import refused

TAIL, PART = "events.1", "c/t/i/0"


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> TailStore:
    store = TailStore(1 << 20, clock=clock)
    store.open(OpenTail(TAIL, 1, {PART: 0}))
    return store


def rows(lo: int, hi: int, *, knows_offsets: bool = True) -> pa.RecordBatch:
    """Return a row for each offset."""
    numbers = pa.array(range(lo, hi), pa.int64())
    columns = {"n": numbers, OFFSET_COLUMN: numbers} if knows_offsets else {"n": numbers}
    return pa.RecordBatch.from_pydict(columns)


def put(store: TailStore, lo: int, hi: int, *, epoch: int = 1, knows_offsets: bool = True) -> int:
    batch = rows(lo, hi, knows_offsets=knows_offsets)
    store.put(TailPut(TAIL, epoch), TailRange(PART, lo, hi), batch)
    return store.positions(TAIL)[PART]


def read(store: TailStore, since: int | None, until: int | None = None, **more: Any) -> TailRows:
    offsets = {} if since is None else {PART: since}
    return store.read(TailRead(TAIL, offsets, None if until is None else {PART: until}, **more))


def numbers(found: TailRows) -> list[int]:
    assert found.schema.names in (["n"], [])
    return [n for _, batch in found.pieces for n in batch["n"].to_pylist()]


@pytest.mark.parametrize(
    ("puts", "next"),
    [
        ([(0, 5), (5, 9)], 9),
        ([(0, 5), (0, 5)], 5),
        ([(0, 5), (3, 9)], 9),
        ([(0, 5), (6, 9)], 5),
        ([(2, 5)], 0),
    ],
)
def test_a_batch_is_taken_if_it_follows_the_last_one(
    store: TailStore, puts: Sequence[tuple[int, int]], next: int
) -> None:
    for lo, hi in puts:
        position = put(store, lo, hi)
    assert position == next
    assert numbers(read(store, 0)) == list(range(next))


@pytest.mark.parametrize("since", range(10))
@pytest.mark.parametrize("until", [None, 7, 9])
def test_a_read_is_cut_at_every_offset(store: TailStore, since: int, until: int | None) -> None:
    put(store, 0, 4)
    put(store, 4, 9)
    found = read(store, since, until)
    assert numbers(found) == list(range(since, 9 if until is None else until))
    assert found.watermark == {PART: max(9, since) if until is None else until}


def test_rows_without_offsets_are_only_cut_between_batches(store: TailStore) -> None:
    put(store, 0, 4, knows_offsets=False)
    put(store, 4, 9, knows_offsets=False)
    assert numbers(read(store, 4)) == list(range(4, 9))
    with refused(TailBehindError):
        read(store, 6)
    assert store.trim(TrimTail(TAIL, {PART: 6})) == {PART: 6}, "it is fed again from there on"
    with pytest.raises(TailBehindError):
        read(store, 6)
    assert put(store, 6, 8, knows_offsets=False) == 8
    with refused(TailBehindError):
        read(store, 6)
    put(store, 8, 9, knows_offsets=False)
    assert numbers(read(store, 6)) == [6, 7, 8]


def test_what_the_table_has_is_kept_for_a_while(store: TailStore, clock: Clock) -> None:
    put(store, 0, 4)
    put(store, 4, 9)
    store.trim(TrimTail(TAIL, {PART: 4}))
    clock.now = tail_store.GRACE_S - 1
    store.trim(TrimTail(TAIL, {PART: 6}))
    assert numbers(read(store, 0)) == list(range(9))
    clock.now += 2
    store.trim(TrimTail(TAIL, {PART: 6}))
    assert numbers(read(store, 4)) == list(range(4, 9))
    for since in (0, 3, None):
        with pytest.raises(TailTrimmedError):
            read(store, since)
    clock.now += tail_store.GRACE_S
    store.trim(TrimTail(TAIL, {PART: 6}))
    assert numbers(read(store, 6)) == [6, 7, 8], "a batch is dropped as a whole"


def test_a_pin_keeps_rows_until_it_ends(store: TailStore, clock: Clock) -> None:
    put(store, 0, 4)
    put(store, 4, 9)
    assert numbers(read(store, 2, pin_s=100)) == list(range(2, 9))
    for clock.now, kept in ((50.0, True), (99.0, True), (101.0, False)):
        store.trim(TrimTail(TAIL, {PART: 9}))
        if kept:
            assert numbers(read(store, 2)) == list(range(2, 9))
    with pytest.raises(TailTrimmedError):
        read(store, 2)
    assert store.held_bytes == 0


def test_pins_that_end_in_the_same_minute_are_one_that_keeps_as_much(
    store: TailStore, clock: Clock
) -> None:
    put(store, 0, 4)
    put(store, 4, 9)
    for since in (5, 2, 3):
        read(store, since, pin_s=100.0 + since)
    store.open(OpenTail(TAIL, 1, {"another": 0}))
    read(store, 4, pin_s=104.0)
    store.trim(TrimTail(TAIL, {PART: 9}))
    for clock.now, kept in ((104.5, True), (105.0, False)):
        store.trim(TrimTail(TAIL, {}))
        assert bool(store.held_bytes) is kept


def test_very_many_pins_are_one_for_each_minute(store: TailStore) -> None:
    for pin_s in range(1, 4000):
        read(store, 0, pin_s=pin_s)
    assert len(store._tails[TAIL].pins) == 61


def test_a_tail_that_is_behind_its_table_goes_on(store: TailStore) -> None:
    put(store, 0, 4)
    assert store.trim(TrimTail(TAIL, {PART: 7})) == {PART: 4}
    assert read(store, 7).watermark == {PART: 7}
    assert numbers(read(store, 0, 4)) == [0, 1, 2, 3]
    assert put(store, 4, 9) == 9
    assert numbers(read(store, 7)) == [7, 8]


def test_a_tail_that_is_far_behind_begins_anew_where_its_table_is(store: TailStore) -> None:
    put(store, 0, 4)
    far = 4 + MAX_BEHIND + 1
    assert store.trim(TrimTail(TAIL, {PART: far})) == {PART: far}
    assert put(store, 4, 9) == far
    assert put(store, far - 2, far + 2) == far + 2
    assert numbers(read(store, far)) == [far, far + 1]
    with pytest.raises(TailTrimmedError):
        read(store, 4)


def test_a_table_that_knows_a_partition_is_not_read_from_the_start_of_its_tail() -> None:
    store = TailStore(1 << 20)
    store.open(OpenTail(TAIL, 1, {PART: 5}, [PART]))
    put(store, 5, 9)
    with pytest.raises(TailTrimmedError, match="load it again"):
        read(store, None)
    assert numbers(read(store, 5)) == [5, 6, 7, 8]


def test_nothing_is_read_before_the_tail_is_where_an_earlier_one_was() -> None:
    store = TailStore(1 << 20)
    store.open(OpenTail(TAIL, 1, {PART: 5}, [PART], {PART: 8}))
    put(store, 5, 7)
    with refused(TailBehindError):
        read(store, 5)
    put(store, 7, 9)
    assert numbers(read(store, 5)) == [5, 6, 7, 8]


def test_a_read_waits_for_an_offset(store: TailStore) -> None:
    waiting = TailStore(1 << 20)
    waiting.open(OpenTail(TAIL, 1, {PART: 0}))
    found: list[TailRows] = []
    request = TailRead(TAIL, at_least={PART: 3}, wait_s=20)
    reader = threading.Thread(target=lambda: found.append(waiting.read(request)))
    reader.start()
    put(waiting, 0, 2)
    put(waiting, 2, 4)
    reader.join()
    assert numbers(found[0])[:3] == [0, 1, 2]
    with refused(TailBehindError):
        store.read(TailRead(TAIL, at_least={PART: 3}))


def test_a_new_feeder_goes_on_and_the_old_one_is_refused(store: TailStore) -> None:
    put(store, 0, 4)
    assert store.open(OpenTail(TAIL, 2, {PART: 0})) == {PART: 4}
    with refused(ProtocolError):
        put(store, 4, 9)
    assert put(store, 4, 9, epoch=2) == 9
    with pytest.raises(ProtocolError, match="has no partition"):
        store.put(TailPut(TAIL, 2), TailRange("other", 0, 1), rows(0, 1))


def test_rows_that_the_table_has_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail_store, "PUT_TIMEOUT_S", 0.05)
    counted: list[int] = []
    size = rows(0, 100).nbytes
    store = TailStore(2 * size, counted.append)
    store.open(OpenTail(TAIL, 1, {PART: 0}))
    put(store, 0, 100)
    put(store, 100, 200)
    with pytest.raises(DeadlineExceededError, match="found no room"):
        put(store, 200, 300)
    store.trim(TrimTail(TAIL, {PART: 100}))
    assert put(store, 200, 300) == 300
    assert sum(counted) == store.held_bytes == 2 * size
    assert numbers(read(store, 100)) == list(range(100, 300))
    store.drop(TAIL)
    assert sum(counted) == store.held_bytes == 0
    with pytest.raises(TailNotFoundError):
        store.positions(TAIL)


def test_other_columns_are_taken_once_the_table_has_those_before(store: TailStore) -> None:
    put(store, 0, 4)
    with refused(SchemaMismatchError):
        put(store, 4, 5, knows_offsets=False)
    store.trim(TrimTail(TAIL, {PART: 4}))
    assert put(store, 4, 5, knows_offsets=False) == 5
    assert numbers(read(store, 4)) == [4]


def test_ranges_without_rows_move_the_watermark(store: TailStore) -> None:
    store.put(TailPut(TAIL, 1), TailRange(PART, 0, 7), pa.RecordBatch.from_pydict({}))
    found = read(store, 0)
    assert (found.watermark, list(found.pieces), found.schema.names) == ({PART: 7}, [], [])


def test_a_tail_of_a_stream_that_is_silent_is_forgotten(store: TailStore, clock: Clock) -> None:
    put(store, 0, 5)
    clock.now = tail_store.ABANDONED_S
    store.trim(TrimTail(TAIL, {}))
    clock.now += tail_store.ABANDONED_S
    store.forget_abandoned()
    assert read(store, 0).watermark == {PART: 5}, "the stream has called"
    clock.now += 1
    store.forget_abandoned()
    with pytest.raises(TailNotFoundError):
        read(store, 0)
    assert store.held_bytes == 0


OWN, READERS, ANOTHER = "a" * 32, reader_token("a" * 32), "b" * 32
FEEDING: dict[str, Callable[[TailStore, str], object]] = {
    "opened": lambda store, token: store.open(OpenTail(TAIL, 1, {}, token=token)),
    "put to": lambda store, token: store.put(
        TailPut(TAIL, 1, token), TailRange(PART, 0, 4), rows(0, 4)
    ),
    "asked for its positions": lambda store, token: store.positions(TAIL, token),
    "trimmed": lambda store, token: store.trim(TrimTail(TAIL, {}, token)),
    "dropped": lambda store, token: store.drop(TAIL, token),
}


@pytest.fixture
def owned(clock: Clock) -> TailStore:
    store = TailStore(1 << 20, clock=clock)
    store.open(OpenTail(TAIL, 1, {PART: 0}, token=OWN))
    return store


@pytest.mark.parametrize("deed", FEEDING.values(), ids=FEEDING)
def test_a_tail_is_fed_with_its_own_token(
    owned: TailStore, deed: Callable[[TailStore, str], object]
) -> None:
    for token in (READERS, ANOTHER, OWN[:-1]):
        with pytest.raises(AccessDeniedError, match="not the token to feed the tail"):
            deed(owned, token)
    deed(owned, OWN)


def test_a_tail_is_read_with_its_own_token_or_that_of_readers(owned: TailStore) -> None:
    owned.put(TailPut(TAIL, 1, OWN), TailRange(PART, 0, 4), rows(0, 4))
    for token in (OWN, READERS):
        assert numbers(read(owned, 0, token=token)) == [0, 1, 2, 3]
    with refused(AccessDeniedError):
        read(owned, 0, token=ANOTHER)
    with pytest.raises(AccessDeniedError):
        owned.open(OpenTail(TAIL, 10**9, {}, token=ANOTHER))
    assert owned.open(OpenTail(TAIL, 1, {}, token=OWN)) == {PART: 4}, "nobody was shut out"


def test_a_dropped_tail_is_dropped_with_any_token(owned: TailStore) -> None:
    owned.drop(TAIL, OWN)
    owned.drop(TAIL, ANOTHER)
    with pytest.raises(TailNotFoundError):
        read(owned, 0, token=OWN)
    with refused(ProtocolError):
        owned.open(OpenTail(TAIL, 1, {PART: 0}, token=READERS))
    owned.open(OpenTail(TAIL, 1, {PART: 0}, token=ANOTHER))
    with pytest.raises(AccessDeniedError):
        read(owned, 0, token=READERS)
