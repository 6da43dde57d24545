"""The commit leases of a registry, and its records of the last versions of a table."""

from __future__ import annotations

import random

import pytest

from mrflight.errors import LeaseHeldError, LeaseLostError, ProtocolError
from mrflight.shuffle.metadata.events import AnyEvent
from mrflight.shuffle.metadata.registry import Registry
from mrflight.shuffle.wire.lease_protocol import MAX_VERSIONS, VersionRecord
from tests.support.journals import after_a_journal
from tests.support.registries import TIMEOUT_S, Clock, resumed

TABLE = "hopsfs://node:8020/table"
DIGESTS = ["a" * 64, "b" * 64]


class LeasedTables:
    """A registry with a list of its events."""

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
def leased() -> LeasedTables:
    return LeasedTables()


def test_a_lease_has_one_holder_until_it_is_released(leased: LeasedTables) -> None:
    first = leased.lease("ann")
    assert leased.lease("ann") == first  # a repeated request
    with pytest.raises(LeaseHeldError, match="another job commits to hopsfs://node:8020/table now"):
        leased.lease("bob")
    assert leased.lease("bob", table="other") == first + 1
    leased.tables.release(TABLE, "ann", first)
    leased.tables.release(TABLE, "ann", first)
    assert leased.lease("bob") == first + 2


def test_a_lease_that_is_not_renewed_ends(leased: LeasedTables) -> None:
    late = leased.lease("ann")
    for _ in range(3):
        leased.clock.now_s += 8
        assert leased.lease("ann", late) == late
    leased.clock.now_s += 11
    second = leased.lease("bob")
    assert second > late
    with pytest.raises(LeaseLostError, match=f"lease {late} for commits to {TABLE} has ended"):
        leased.lease("ann", late)
    with pytest.raises(LeaseLostError):
        leased.tables.correct(TABLE, "ann", late, [])
    leased.tables.release(TABLE, "ann", late)
    assert leased.lease("bob", second) == second


@pytest.mark.parametrize(("table", "lease_s"), [("", 1.0), ("t", 0.0), ("t", -1.0), ("t", 601.0)])
def test_invalid_requests_are_refused(leased: LeasedTables, table: str, lease_s: float) -> None:
    with pytest.raises(ProtocolError, match="a commit lease must name a table"):
        leased.tables.acquire(table, "ann", lease_s)
    for version, digest in ((-1, "a"), (0, "")):
        with pytest.raises(ProtocolError, match="is not valid or has no digest"):
            leased.tables.record("t", version, digest, "ann")
    assert leased.events == []


def test_an_ended_lease_is_not_renewed_even_if_no_other_is_held(leased: LeasedTables) -> None:
    late = leased.lease("ann")
    leased.clock.now_s += 11
    with pytest.raises(LeaseLostError):
        leased.lease("ann", late)
    assert leased.lease("ann") == late + 1


def test_the_first_record_of_a_version_counts(leased: LeasedTables) -> None:
    first, second = DIGESTS
    assert leased.tables.record(TABLE, 3, first, "ann").job == "ann"
    assert leased.tables.record(TABLE, 3, first, "ann").job == "ann"
    assert leased.tables.record(TABLE, 3, second, "bob") == VersionRecord(3, first, "ann")
    assert leased.known() == [VersionRecord(3, first, "ann")]


def test_the_last_versions_are_kept_and_the_holder_corrects_them(leased: LeasedTables) -> None:
    first, second = DIGESTS
    for version in range(MAX_VERSIONS + 2):
        leased.tables.record(TABLE, version, first, "ann")
    assert [known.version for known in leased.known()] == list(range(2, MAX_VERSIONS + 2))
    number = leased.lease("bob")
    changed = [VersionRecord(4, "", ""), VersionRecord(5, second, ""), VersionRecord(99, second)]
    leased.tables.correct(TABLE, "bob", number, changed)
    leased.tables.release(TABLE, "bob", number)
    by_version = {known.version: known.digest for known in leased.known()}
    assert by_version == {2: first, 3: first, 6: first, 7: first, 8: first, 9: first, 5: second}


def test_lease_numbers_are_not_used_again_after_a_restart(leased: LeasedTables) -> None:
    numbers = [leased.lease("ann")]
    leased.tables.release(TABLE, "ann", numbers[0])
    for restart in range(3):
        registry = Registry(leased.clock, TIMEOUT_S, leased.events.append)
        registry.resume(list(leased.events))
        numbers.append(registry.tables.acquire(f"table {restart}", "ann", 10.0)[0])
    assert numbers == [1, 2, 3, 4]


def test_a_lease_survives_a_restart(leased: LeasedTables) -> None:
    number = leased.lease("ann")
    leased.clock.now_s += 9
    again = resumed(leased.events, leased.clock)
    leased.clock.now_s += 9  # the restart has renewed it
    with pytest.raises(LeaseHeldError):
        again.tables.acquire(TABLE, "bob", 10.0)
    assert again.tables.acquire(TABLE, "ann", 10.0, number)[0] == number


@pytest.mark.parametrize("seed", range(5))
def test_a_journal_restores_the_same_leases_and_versions(leased: LeasedTables, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        table, holder = rng.choice("xyz"), rng.choice("ab")
        leased.clock.now_s += rng.choice((0, 1, 8))
        try:
            number, versions = leased.tables.acquire(table, holder, 10.0)
        except LeaseHeldError:
            continue
        if rng.random() < 0.5:
            leased.tables.record(table, rng.randrange(12), rng.choice(DIGESTS), holder)
        if versions and rng.random() < 0.3:
            gone = VersionRecord(rng.choice(versions).version, rng.choice(["", DIGESTS[0]]))
            leased.tables.correct(table, holder, number, [gone])
        if rng.random() < 0.7:
            leased.tables.release(table, holder, number)
    left_of_them = after_a_journal(leased.events)
    assert len(left_of_them) < len(leased.events) / 3, seed
    left = resumed(left_of_them, leased.clock)
    all_of_it = resumed(leased.events, leased.clock)
    assert left._state.tables == all_of_it._state.tables, seed
    for table, state in left._state.tables.by_name.items():
        assert list(state.versions) == list(all_of_it._state.tables.by_name[table].versions), seed
    assert left._state.tables.last_number == all_of_it._state.tables.last_number, seed
