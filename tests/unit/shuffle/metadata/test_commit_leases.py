"""The commit leases of a registry, and its records of the last versions of a table."""

from __future__ import annotations

import random

import pytest

from mrflight.errors import LeaseHeldError, LeaseLostError, ProtocolError
from mrflight.shuffle.metadata.events import AnyEvent
from mrflight.shuffle.metadata.registry import Registry
from mrflight.shuffle.wire.lease_protocol import (
    MAX_VERSIONS,
    CorrectVersions,
    HeldLease,
    LeaseCommits,
    RecordedVersion,
    RecordVersion,
    VersionRecord,
)
from tests.support.clusters.journals import after_a_journal
from tests.support.clusters.registries import TIMEOUT_S, Clock, resumed
from tests.support.suite.messages import refused

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
        return self.tables.acquire(LeaseCommits(table, holder, 10.0, number)).number

    def known(self, table: str = TABLE) -> list[VersionRecord]:
        lease = self.tables.acquire(LeaseCommits(table, "reader", 10.0))
        self.release("reader", lease.number, table)
        return lease.versions

    def release(self, holder: str, number: int, table: str = TABLE) -> None:
        self.tables.release(HeldLease(table, holder, number))

    def correct(
        self, holder: str, number: int, versions: list[VersionRecord], table: str = TABLE
    ) -> None:
        self.tables.correct(CorrectVersions(table, holder, number, versions))

    def record(self, version: int, digest: str, job: str, table: str = TABLE) -> RecordedVersion:
        """Let the job take the lease, record the version, and release the lease."""
        number = self.lease(job, table=table)
        try:
            return self.record_with(number, version, digest, job, table)
        finally:
            self.release(job, number, table)

    def record_with(
        self, number: int, version: int, digest: str, job: str, table: str = TABLE
    ) -> RecordedVersion:
        return self.tables.record(RecordVersion(table, job, number, version, digest, job))


@pytest.fixture
def leased() -> LeasedTables:
    return LeasedTables()


def test_a_lease_has_one_holder_until_it_is_released(leased: LeasedTables) -> None:
    first = leased.lease("ann")
    assert leased.lease("ann") == first  # a repeated request
    with refused(LeaseHeldError):
        leased.lease("bob")
    assert leased.lease("bob", table="other") == first + 1
    leased.release("ann", first)
    leased.release("ann", first)
    assert leased.lease("bob") == first + 2


def test_a_lease_that_is_not_renewed_ends(leased: LeasedTables) -> None:
    late = leased.lease("ann")
    for _ in range(3):
        leased.clock.now_s += 8
        assert leased.lease("ann", late) == late
    leased.clock.now_s += 11
    second = leased.lease("bob")
    assert second > late
    with refused(LeaseLostError):
        leased.lease("ann", late)
    with pytest.raises(LeaseLostError):
        leased.correct("ann", late, [])
    leased.release("ann", late)
    assert leased.lease("bob", second) == second


@pytest.mark.parametrize(("table", "lease_s"), [("", 1.0), ("t", 0.0), ("t", -1.0), ("t", 601.0)])
def test_invalid_requests_are_refused(leased: LeasedTables, table: str, lease_s: float) -> None:
    with refused(ProtocolError):
        leased.tables.acquire(LeaseCommits(table, "ann", lease_s))
    for version, digest in ((-1, "a"), (0, "")):
        with refused(ProtocolError):
            leased.record_with(1, version, digest, "ann", "t")
    assert leased.events == []


def test_an_ended_lease_is_not_renewed_even_if_no_other_is_held(leased: LeasedTables) -> None:
    late = leased.lease("ann")
    leased.clock.now_s += 11
    with pytest.raises(LeaseLostError):
        leased.lease("ann", late)
    assert leased.lease("ann") == late + 1


def test_the_first_record_of_a_version_counts(leased: LeasedTables) -> None:
    first, second = DIGESTS
    assert leased.record(3, first, "ann").job == "ann"
    assert leased.record(3, first, "ann").job == "ann"
    assert leased.record(3, second, "bob") == RecordedVersion(first, "ann")
    assert leased.known() == [VersionRecord(3, first, "ann")]


def test_only_the_holder_of_the_lease_records(leased: LeasedTables) -> None:
    late = leased.lease("ann")
    leased.clock.now_s += 11
    number = leased.lease("bob")
    for holder, held in (("ann", late), ("ann", number), ("bob", late), ("eve", 0)):
        with pytest.raises(LeaseLostError):
            leased.record_with(held, 3, DIGESTS[1], holder)
    leased.record_with(number, 3, DIGESTS[0], "bob")
    leased.clock.now_s += 11
    with refused(LeaseLostError):
        leased.record_with(number, 4, DIGESTS[0], "bob")
    assert leased.known() == [VersionRecord(3, DIGESTS[0], "bob")]


def test_the_last_versions_are_kept_and_the_holder_corrects_them(leased: LeasedTables) -> None:
    first, second = DIGESTS
    for version in range(MAX_VERSIONS + 2):
        leased.record(version, first, "ann")
    assert [known.version for known in leased.known()] == list(range(2, MAX_VERSIONS + 2))
    number = leased.lease("bob")
    changed = [VersionRecord(4, "", ""), VersionRecord(5, second, ""), VersionRecord(99, second)]
    leased.correct("bob", number, changed)
    leased.release("bob", number)
    by_version = {known.version: known.digest for known in leased.known()}
    assert by_version == {2: first, 3: first, 6: first, 7: first, 8: first, 9: first, 5: second}


def test_lease_numbers_are_not_used_again_after_a_restart(leased: LeasedTables) -> None:
    numbers = [leased.lease("ann")]
    leased.release("ann", numbers[0])
    for restart in range(3):
        registry = Registry(leased.clock, TIMEOUT_S, leased.events.append)
        registry.resume(list(leased.events))
        numbers.append(
            registry.tables.acquire(LeaseCommits(f"table {restart}", "ann", 10.0)).number
        )
    assert numbers == [1, 2, 3, 4]


def test_a_lease_survives_a_restart(leased: LeasedTables) -> None:
    number = leased.lease("ann")
    leased.clock.now_s += 9
    again = resumed(leased.events, leased.clock)
    leased.clock.now_s += 9  # the restart has renewed it
    with pytest.raises(LeaseHeldError):
        again.tables.acquire(LeaseCommits(TABLE, "bob", 10.0))
    assert again.tables.acquire(LeaseCommits(TABLE, "ann", 10.0, number)).number == number


@pytest.mark.parametrize("seed", range(5))
def test_a_journal_restores_the_same_leases_and_versions(leased: LeasedTables, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        table, holder = rng.choice("xyz"), rng.choice("ab")
        leased.clock.now_s += rng.choice((0, 1, 8))
        try:
            lease = leased.tables.acquire(LeaseCommits(table, holder, 10.0))
        except LeaseHeldError:
            continue
        if rng.random() < 0.5:
            record = rng.randrange(12), rng.choice(DIGESTS), holder, table
            leased.record_with(lease.number, *record)
        if lease.versions and rng.random() < 0.3:
            gone = VersionRecord(rng.choice(lease.versions).version, rng.choice(["", DIGESTS[0]]))
            leased.correct(holder, lease.number, [gone], table)
        if rng.random() < 0.7:
            leased.release(holder, lease.number, table)
    left_of_them = after_a_journal(leased.events)
    assert len(left_of_them) < len(leased.events) / 3, seed
    left = resumed(left_of_them, leased.clock)
    all_of_it = resumed(leased.events, leased.clock)
    assert left._state.tables == all_of_it._state.tables, seed
    for table, state in left._state.tables.by_name.items():
        assert list(state.versions) == list(all_of_it._state.tables.by_name[table].versions), seed
    assert left._state.tables.last_number == all_of_it._state.tables.last_number, seed
