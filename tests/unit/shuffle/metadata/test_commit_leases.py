"""Who may commit to a table, and what its versions are, as the metadata server has it."""

from __future__ import annotations

import random

import pytest

from mrflight.errors import LeaseHeldError, LeaseLostError, ProtocolError
from mrflight.shuffle.metadata.events import AnyEvent
from mrflight.shuffle.metadata.registry import Registry
from mrflight.shuffle.wire.lease_protocol import MAX_VERSIONS, VersionRecord
from tests.support.journals import kept
from tests.support.registries import TIMEOUT_S, Clock, resumed

TABLE = "hopsfs://node:8020/table"
DIGESTS = ["a" * 64, "b" * 64]


class Fenced:
    """A registry whose events are kept."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.events: list[AnyEvent] = []
        self.registry = Registry(self.clock, TIMEOUT_S, self.events.append)
        self.tables = self.registry.tables

    def lease(self, holder: str, number: int = 0, table: str = TABLE) -> int:
        return self.tables.acquire(table, holder, 10.0, number)[0]

    def known(self, table: str = TABLE) -> list[VersionRecord]:
        number, versions = self.tables.acquire(table, "reader", 10.0)
        self.tables.release(table, "reader", number)
        return versions


@pytest.fixture
def fenced() -> Fenced:
    return Fenced()


def test_one_holds_the_lease_until_it_is_released(fenced: Fenced) -> None:
    first = fenced.lease("ann")
    assert fenced.lease("ann") == first  # no answer came the first time
    with pytest.raises(LeaseHeldError, match="another job commits to hopsfs://node:8020/table now"):
        fenced.lease("bob")
    assert fenced.lease("bob", table="other") == first + 1
    fenced.tables.release(TABLE, "ann", first)
    fenced.tables.release(TABLE, "ann", first)
    assert fenced.lease("bob") == first + 2


def test_a_lease_ends_by_time_and_a_late_holder_is_refused(fenced: Fenced) -> None:
    late = fenced.lease("ann")
    for _ in range(3):
        fenced.clock.now_s += 8
        assert fenced.lease("ann", late) == late
    fenced.clock.now_s += 11
    second = fenced.lease("bob")
    assert second > late
    with pytest.raises(LeaseLostError, match=f"lease {late} for commits to {TABLE} has ended"):
        fenced.lease("ann", late)
    with pytest.raises(LeaseLostError):
        fenced.tables.correct(TABLE, "ann", late, [])
    fenced.tables.release(TABLE, "ann", late)
    assert fenced.lease("bob", second) == second


@pytest.mark.parametrize(("table", "lease_s"), [("", 1.0), ("t", 0.0), ("t", -1.0), ("t", 601.0)])
def test_what_can_be_no_lease_is_refused(fenced: Fenced, table: str, lease_s: float) -> None:
    with pytest.raises(ProtocolError, match="a commit lease must name a table"):
        fenced.tables.acquire(table, "ann", lease_s)
    for version, digest in ((-1, "a"), (0, "")):
        with pytest.raises(ProtocolError, match="is not valid or has no digest"):
            fenced.tables.record("t", version, digest, "ann")
    assert fenced.events == []


def test_a_lease_that_ended_is_not_renewed_though_nobody_has_the_next_one(fenced: Fenced) -> None:
    late = fenced.lease("ann")
    fenced.clock.now_s += 11
    with pytest.raises(LeaseLostError):
        fenced.lease("ann", late)
    assert fenced.lease("ann") == late + 1


def test_the_first_that_is_told_of_a_version_counts(fenced: Fenced) -> None:
    first, second = DIGESTS
    assert fenced.tables.record(TABLE, 3, first, "ann").job == "ann"
    assert fenced.tables.record(TABLE, 3, first, "ann").job == "ann"
    assert fenced.tables.record(TABLE, 3, second, "bob") == VersionRecord(3, first, "ann")
    assert fenced.known() == [VersionRecord(3, first, "ann")]


def test_the_last_versions_are_known_and_corrected_by_who_has_the_lease(fenced: Fenced) -> None:
    first, second = DIGESTS
    for version in range(MAX_VERSIONS + 2):
        fenced.tables.record(TABLE, version, first, "ann")
    assert [known.version for known in fenced.known()] == list(range(2, MAX_VERSIONS + 2))
    number = fenced.lease("bob")
    changed = [VersionRecord(4, "", ""), VersionRecord(5, second, ""), VersionRecord(99, second)]
    fenced.tables.correct(TABLE, "bob", number, changed)
    fenced.tables.release(TABLE, "bob", number)
    by_version = {known.version: known.digest for known in fenced.known()}
    assert by_version == {2: first, 3: first, 6: first, 7: first, 8: first, 9: first, 5: second}


def test_a_registry_that_goes_on_gives_no_number_twice(fenced: Fenced) -> None:
    numbers = [fenced.lease("ann")]
    fenced.tables.release(TABLE, "ann", numbers[0])
    for restart in range(3):
        registry = Registry(fenced.clock, TIMEOUT_S, fenced.events.append)
        registry.resume(list(fenced.events))
        numbers.append(registry.tables.acquire(f"table {restart}", "ann", 10.0)[0])
    assert numbers == [1, 2, 3, 4]


def test_a_holder_keeps_its_lease_over_a_restart(fenced: Fenced) -> None:
    number = fenced.lease("ann")
    fenced.clock.now_s += 9
    again = resumed(fenced.events, fenced.clock)
    fenced.clock.now_s += 9  # its time began anew
    with pytest.raises(LeaseHeldError):
        again.tables.acquire(TABLE, "bob", 10.0)
    assert again.tables.acquire(TABLE, "ann", 10.0, number)[0] == number


@pytest.mark.parametrize("seed", range(20))
def test_a_compacted_journal_says_the_same(fenced: Fenced, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        table, holder = rng.choice("xyz"), rng.choice("ab")
        fenced.clock.now_s += rng.choice((0, 1, 8))
        try:
            number, versions = fenced.tables.acquire(table, holder, 10.0)
        except LeaseHeldError:
            continue
        if rng.random() < 0.5:
            fenced.tables.record(table, rng.randrange(12), rng.choice(DIGESTS), holder)
        if versions and rng.random() < 0.3:
            gone = VersionRecord(rng.choice(versions).version, rng.choice(["", DIGESTS[0]]))
            fenced.tables.correct(table, holder, number, [gone])
        if rng.random() < 0.7:
            fenced.tables.release(table, holder, number)
    left_of_them = kept(fenced.events)
    assert len(left_of_them) < len(fenced.events) / 3, seed
    left = resumed(left_of_them, fenced.clock)
    all_of_it = resumed(fenced.events, fenced.clock)
    assert left._state.tables == all_of_it._state.tables, seed
    for table, state in left._state.tables.by_name.items():
        assert list(state.versions) == list(all_of_it._state.tables.by_name[table].versions), seed
    assert left._state.tables.last_number == all_of_it._state.tables.last_number, seed
