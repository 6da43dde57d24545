"""In any history of servers, shuffles and maps, no row is lost or read twice."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from mrflight.errors import (
    InconsistentMapOutputError,
    NoDataServersError,
    ProtocolError,
    SchemaMismatchError,
    ShuffleExistsError,
    ShuffleNotFoundError,
)
from mrflight.ids import MapAttempt
from mrflight.shuffle.metadata.reassignment import Loss
from tests.support.clusters.modelled_servers import ModelShuffle, rows_of
from tests.support.clusters.registries import (
    OTHER_SCHEMA,
    SCHEMA,
    TIMEOUT_S,
    commit_message,
    health,
    knowledge,
)
from tests.support.clusters.registry_model import MAPS, any_one, if_shuffles, locations, maps
from tests.support.clusters.registry_moves import MoveRules
from tests.support.suite.examples import some_of

MAX_PARTITIONS = 4

names = st.sampled_from("xy")

if_waiting = precondition(lambda self: self.waiting())
if_written = precondition(lambda self: self.written())


class RegistryMachine(MoveRules):
    @initialize(replicas=st.integers(1, 2), partitions=st.integers(1, MAX_PARTITIONS))
    def begin(self, replicas: int, partitions: int) -> None:
        for location in "abc":
            self.start(location)
        self.put_shuffle("x", partitions, replicas, token="")

    # Servers

    @rule(location=locations)
    def start(self, location: str) -> None:
        """Start a process, perhaps where another one was, and register it."""
        self.register(location, self.servers.start(location).incarnation)

    @rule(location=locations)
    def register_again(self, location: str) -> None:
        if (incarnation := self.servers.incarnation(location)) is not None:
            self.register(location, incarnation)

    @rule(location=locations)
    def beat(self, location: str) -> None:
        process = self.servers.running.get(location)
        if process is None:
            return
        if self.known.incarnations.get(location) == process.incarnation:
            self.known.hear_from(location)  # late, but not yet declared lost
        self.known.expire()
        held = process.shuffles()
        is_known, drop = self.registry.heartbeat(location, held, 0, process.incarnation)
        assert is_known == (self.known.incarnations.get(location) == process.incarnation)
        assert drop == [name for name in held if name not in self.shuffles]
        process.forget(drop)
        if is_known:
            self.known.hear_from(location)
        else:
            process.forget(held)  # it was lost, and readers get an error there
            for shuffle in self.shuffles.values():
                shuffle.seen = [seen for seen in shuffle.seen if location not in seen.incarnations]
            self.register(location, process.incarnation)

    @rule(seconds=st.sampled_from([1, TIMEOUT_S]), silent=st.none() | locations)
    def wait(self, seconds: float, silent: str | None) -> None:
        self.clock.now_s += seconds
        for location in self.servers.running:
            if location != silent:
                self.beat(location)
        self.clock.now_s += 1

    @rule(location=locations, unregisters=st.booleans())
    def stop(self, location: str, unregisters: bool) -> None:
        process = self.servers.running.pop(location, None)
        if process is not None and unregisters:
            self.registry.unregister_server(location, process.incarnation)
            if self.known.incarnations.get(location) == process.incarnation:
                self.known.remove(location)

    @rule(location=locations)
    def drain(self, location: str) -> None:
        self.registry.drain_server(location)
        self.known.drain(location)

    # Shuffles

    @rule(
        name=names,
        partitions=st.integers(1, MAX_PARTITIONS),
        replicas=st.integers(1, 2),
        token=st.sampled_from(["", "t"]),
    )
    def put_shuffle(self, name: str, partitions: int, replicas: int, token: str) -> None:
        servers = self.known.open_for_partitions()
        self.created += 1
        token = token and f"{token}{self.created}"
        if name in self.shuffles:
            with pytest.raises(ShuffleExistsError):
                self.registry.put_shuffle(name, partitions, replicas)
        elif len(servers) < replicas:
            with pytest.raises(NoDataServersError):
                self.registry.put_shuffle(name, partitions, replicas, token)
        else:
            placement = self.registry.put_shuffle(name, partitions, replicas, token)
            assert [len(set(places)) for places in placement] == [replicas] * partitions
            counts = Counter(dict.fromkeys(servers, 0))
            counts.update(location for places in placement for location in places)
            assert counts.keys() == servers
            assert max(counts.values()) - min(counts.values()) <= 1
            self.shuffles[name] = ModelShuffle(name, replicas, placement)
            if token:
                assert self.registry.put_shuffle(name, partitions, replicas, token) == placement
            self.refuse_late(name)

    @rule(name=names)
    def drop(self, name: str) -> None:
        shuffle = self.shuffles.pop(name, None)
        if shuffle is None:
            with pytest.raises(ShuffleNotFoundError):
                self.registry.drop_shuffle(name)
            return
        for location in self.registry.drop_shuffle(name):
            if location in self.servers.running:
                self.servers.running[location].forget([name])
        late = [writer for writer in self.writers if writer.shuffle is shuffle]
        self.writers = [writer for writer in self.writers if writer not in late]
        self.late = [*self.late[-9:], *late]
        self.refuse_late(name)
        self.moves = [move for move in self.moves if move.shuffle is not shuffle]

    # Maps

    @if_shuffles
    @rule(which=any_one, map_id=maps)
    def open_writer(self, which: int, map_id: int) -> None:
        self.open(self.shuffle(which), map_id)

    @if_waiting
    @rule(which=any_one, unlucky=st.none() | locations)
    def write(self, which: int, unlucky: str | None) -> None:
        writer = self.waiting()[which % len(self.waiting())]
        if not self.servers.put(writer, unlucky):
            self.writers.remove(writer)

    @if_written
    @rule(which=any_one)
    def commit(self, which: int) -> None:
        """Commit at any time after the write, perhaps again, as if the answer was lost."""
        self.commit_writer(self.written()[which % len(self.written())])

    @if_shuffles
    @rule(which=any_one, map_id=maps, unlucky=st.none() | locations)
    def run_map(self, which: int, map_id: int, unlucky: str | None) -> None:
        writer = self.open(self.shuffle(which), map_id)
        if writer is not None and self.servers.put(writer, unlucky):
            self.commit_writer(writer)

    @if_shuffles
    @rule(which=any_one)
    def run_maps(self, which: int) -> None:
        for map_id in range(MAPS - 1):  # one map often stays uncommitted
            self.run_map(which, map_id, None)

    @if_shuffles
    @rule(which=any_one, map_id=maps, wrong=st.sampled_from(["rows", "schema", "count", "version"]))
    def commit_wrongly(self, which: int, map_id: int, wrong: str) -> None:
        """A refused commit changes nothing, which the invariants check."""
        shuffle = self.shuffle(which)
        name = shuffle.name
        version, lost = health(self.registry, name)
        rows = shuffle.rows(map_id)
        schema = SCHEMA
        expected: tuple[type[Exception], ...] = (ProtocolError,)
        if wrong == "version":
            version += 1
        elif map_id in shuffle.maps and map_id not in lost:
            return  # the answer is the committed attempt, whatever else is sent
        elif wrong == "count":
            rows.append(1)
        elif wrong == "schema" and shuffle.sources:
            schema, expected = OTHER_SCHEMA, (SchemaMismatchError,)
        elif wrong == "rows" and map_id in lost:
            rows[0] += 1
            expected = (InconsistentMapOutputError,)
        else:
            return
        with pytest.raises(expected):
            self.registry.commit_map(
                commit_message(MapAttempt(map_id, 0, "no"), rows, version, name, schema)
            )

    # Losses

    @if_shuffles
    @rule(
        which=any_one,
        location=locations,
        partitions=st.none() | st.lists(st.integers(-1, MAX_PARTITIONS), min_size=1, max_size=3),
    )
    def report(self, which: int, location: str, partitions: list[int] | None) -> None:
        shuffle = self.shuffle(which)
        is_whole = partitions is None
        self.registry.report_loss(shuffle.name, Loss(location, partitions, avoids=is_whole))
        if is_whole:
            shuffle.avoided.add(location)
            assert not self.registry.report_loss(shuffle.name, Loss(location, avoids=True))

    @if_shuffles
    @rule(which=any_one)
    def repair(self, which: int) -> None:
        """Report the servers that have ended, and run lost maps again until no row is missing."""
        shuffle = self.shuffle(which)
        name = shuffle.name
        self.known.expire()
        for location in sorted(self.known.last_seen.keys() - self.servers.running.keys()):
            self.registry.report_loss(name, Loss(location, avoids=True))
            shuffle.avoided.add(location)
        if not self.known.open_for_partitions(avoided=shuffle.avoided):
            return
        for map_id in health(self.registry, name)[1]:
            writer = self.open(shuffle, map_id)
            assert writer is not None
            assert self.servers.put(writer, None)
            self.commit_writer(writer)
            assert shuffle.sources[-1] == writer.source
        assert health(self.registry, name)[1] == []
        self.check_partitions(shuffle)
        assert [info.rows for info in self.registry.partitions(name)[1]] == [
            sum(rows_of(map_id, partition) for map_id in shuffle.maps)
            for partition in range(len(shuffle.placement))
        ]

    # The metadata server

    @rule()
    def restart(self) -> None:
        before = knowledge(self.registry)
        self.journal.close()
        self.open_journal()
        assert knowledge(self.registry) == before
        for location in self.known.last_seen:
            self.known.hear_from(location)

    # The end

    def teardown(self) -> None:
        """In the end all shuffles can be repaired and dropped."""
        try:
            self.repair_and_drop_all()
        finally:
            self.journal.close()
            self.folder.cleanup()

    def repair_and_drop_all(self) -> None:
        self.start("z")
        for which, name in enumerate(self.shuffles):
            self.repair(which)
            assert health(self.registry, name)[1] == []
        self.shuffles_are_as_promised()
        for name in list(self.shuffles):
            self.drop(name)
        for location in list(self.servers.running):
            self.beat(location)
        assert {server.partitions for server in self.registry.overview.servers()} == {0}
        assert [process.blocks for process in self.servers.running.values() if process.blocks] == []


TestAnyHistory = RegistryMachine.TestCase
TestAnyHistory.settings = settings(
    max_examples=some_of(100), stateful_step_count=50, derandomize=True
)
