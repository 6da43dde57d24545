"""A registry next to a model of the data servers, and of the answers that clients got."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition

from mrflight.errors import (
    MapOutputLostError,
    NoDataServersError,
    PlacementChangedError,
    ShuffleNotFoundError,
)
from mrflight.ids import MapAttempt
from mrflight.shuffle.metadata.journal import Journal
from mrflight.shuffle.metadata.reassignment import Loss
from mrflight.shuffle.metadata.registry import Registry
from tests.support.clusters.modelled_servers import (
    DataServers,
    KnownServers,
    ModelMove,
    ModelShuffle,
    ModelWriter,
    Seen,
)
from tests.support.clusters.registries import TIMEOUT_S, Clock, commit_message, health, knowledge

MAX_SEEN = 12
MAPS = 5

locations = st.sampled_from("abcd")
maps = st.integers(0, MAPS - 1)
any_one = st.integers(0, 11)
"""A position in a list, modulo its length."""

if_shuffles = precondition(lambda self: self.shuffles)


class RegistryModel(RuleBasedStateMachine):
    """Do everything to the registry and to the model, and check the invariants."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.folder = tempfile.TemporaryDirectory()
        self.open_journal()
        self.servers = DataServers()
        self.known = KnownServers(self.clock)
        self.shuffles: dict[str, ModelShuffle] = {}
        self.writers: list[ModelWriter] = []
        self.late: list[ModelWriter] = []
        """Writers of shuffles that were dropped."""
        self.moves: list[ModelMove] = []
        self.created = 0

    def open_journal(self) -> None:
        """Start the registry, with what its predecessor has recorded."""
        self.journal = Journal(Path(self.folder.name) / "journal")
        self.registry = Registry(self.clock, TIMEOUT_S, self.journal.record)
        self.registry.resume(self.journal.events())

    # Steps of both

    def register(self, location: str, incarnation: str) -> None:
        self.registry.register_server(location, incarnation)
        if self.known.register(location, incarnation):
            for shuffle in self.shuffles.values():
                shuffle.avoided.discard(location)

    def shuffle(self, which: int) -> ModelShuffle:
        return list(self.shuffles.values())[which % len(self.shuffles)]

    def waiting(self) -> list[ModelWriter]:
        return [writer for writer in self.writers if not writer.is_written]

    def written(self) -> list[ModelWriter]:
        return [writer for writer in self.writers if writer.is_written]

    def open(self, shuffle: ModelShuffle, map_id: int) -> ModelWriter | None:
        try:
            target = self.registry.describe_shuffle(shuffle.name, map_id)
        except NoDataServersError:
            assert not self.known.open_for_partitions(avoided=shuffle.avoided)
            return None
        self.created += 1
        source = MapAttempt(map_id, self.created % 3, f"w{self.created}")
        places = target.places
        missing = list(range(len(places))) if target.missing is None else target.missing
        writer = ModelWriter(shuffle, source, places, target.version, missing, target.token)
        self.writers = [*self.writers[-9:], writer]
        return writer

    def request_commit(self, writer: ModelWriter) -> MapAttempt:
        rows = writer.shuffle.rows(writer.source.map_id)
        commit = commit_message(writer.source, rows, writer.version, writer.shuffle.name)
        sizes = [10 * n if p in writer.missing else 0 for p, n in enumerate(rows)]
        return self.registry.commit_map(
            msgspec.structs.replace(commit, size_bytes=sizes, token=writer.token)
        )

    def refuse_late(self, name: str) -> None:
        """Check that writers of a dropped shuffle cannot commit, even if its name is in use."""
        for writer in self.late:
            if writer.shuffle.name == name and (writer.token or name not in self.shuffles):
                with pytest.raises(ShuffleNotFoundError):
                    self.request_commit(writer)

    def commit_writer(self, writer: ModelWriter) -> None:
        shuffle, source = writer.shuffle, writer.source
        for location in sorted(writer.without):
            self.registry.report_loss(shuffle.name, Loss(location, avoids=True))
            shuffle.avoided.add(location)
        version, lost = health(self.registry, shuffle.name)
        has_new = source.map_id not in shuffle.maps or (
            source.map_id in lost and writer.version == version
        )
        try:
            winner = self.request_commit(writer)
        except PlacementChangedError:
            assert writer.version < shuffle.moved_in
            assert source not in shuffle.sources
            return
        if source in shuffle.sources or has_new:
            assert winner == source
        if winner not in shuffle.sources:
            assert winner == source
            shuffle.sources.append(source)
        assert winner.map_id == source.map_id

    # Invariants

    @invariant()
    def servers_are_the_live_ones(self) -> None:
        self.known.expire()
        servers = self.registry.overview.servers()
        assert [server.location for server in servers] == sorted(self.known.last_seen)
        held = Counter(
            location
            for state in knowledge(self.registry)[1]
            for places in state["placement"]["locations"]
            for location in places
        )
        assert {server.location: server.partitions for server in servers if server.partitions} == (
            held
        )

    @invariant()
    def shuffles_are_as_promised(self) -> None:
        assert [info.id for info in self.registry.overview.shuffles()] == list(self.shuffles)
        for shuffle in self.shuffles.values():
            version, lost = health(self.registry, shuffle.name)
            assert version >= shuffle.version
            shuffle.version = version
            self.check_commits(shuffle)
            assert set(lost) <= set(shuffle.maps)
            for seen in shuffle.seen:
                self.servers.check(shuffle, seen)
            self.check_partitions(shuffle)

    def check_commits(self, shuffle: ModelShuffle) -> None:
        """Check that exactly the attempts with that answer are committed, in that order."""
        commits = self.registry.commits(shuffle.name, 0)
        assert commits[: len(shuffle.commits)] == shuffle.commits
        assert [commit.source for commit in commits] == shuffle.sources
        shuffle.commits = commits

    def check_partitions(self, shuffle: ModelShuffle) -> None:
        """Check that each is on live servers, and is either lost or has all of its rows."""
        self.check_commits(shuffle)
        try:
            placement = self.registry.describe_shuffle(shuffle.name).places
        except NoDataServersError:
            assert not self.known.open_for_partitions(avoided=shuffle.avoided)
            with pytest.raises(NoDataServersError):
                self.registry.partitions(shuffle.name)
            return
        _, lost = health(self.registry, shuffle.name)
        lost_partitions = []
        for partition, places in enumerate(placement):
            assert 1 <= len(places) == len(set(places)) <= shuffle.replicas
            assert set(places) <= self.known.last_seen.keys()
            assert shuffle.avoided.isdisjoint(places)
            try:
                _, (info,) = self.registry.partitions(shuffle.name, partition)
            except MapOutputLostError:
                lost_partitions.append(partition)
                continue
            assert (info.locations, info.epoch) == (places, len(shuffle.sources))
            seen = Seen(info, {at: self.known.incarnations[at] for at in places})
            self.servers.check(shuffle, seen)
            if seen not in shuffle.seen:
                shuffle.seen = [*shuffle.seen[1 - MAX_SEEN :], seen]
        assert bool(lost_partitions) == bool(lost)
