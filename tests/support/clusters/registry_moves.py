"""Rules that copy partitions to another server and move them there, some of them too late."""

from __future__ import annotations

import pytest
from hypothesis.stateful import precondition, rule

from mrflight.errors import NoDataServersError, PlacementChangedError, ProtocolError
from tests.support.clusters.modelled_servers import Block, ModelMove, ModelShuffle
from tests.support.clusters.registries import health
from tests.support.clusters.registry_model import (
    RegistryModel,
    any_one,
    if_shuffles,
    locations,
    maps,
)


class MoveRules(RegistryModel):
    """The steps of a draining server, with any other rules in between."""

    @if_shuffles
    @rule(which=any_one, origin=locations, other=any_one)
    def copy_partitions(self, which: int, origin: str, other: int) -> None:
        shuffle = self.shuffle(which)
        name = shuffle.name
        others = sorted(self.servers.running.keys() & self.known.open_for_partitions() - {origin})
        if not others or origin not in self.servers.running:
            return
        onto = others[other % len(others)]
        try:
            target = self.registry.describe_shuffle(name)
        except NoDataServersError:
            return
        moved = [p for p, at in enumerate(target.places) if origin in at and onto not in at]
        blocks = {
            block: rows
            for block, rows in self.servers.running[origin].blocks.items()
            if block[0] == name and block[1] in moved and block[2] in shuffle.sources
        }
        incarnation = self.servers.running[onto].incarnation
        epoch = len(shuffle.sources)
        self.moves = [
            *self.moves[-3:],
            ModelMove(shuffle, origin, onto, moved, blocks, incarnation, epoch, target.version),
        ]

    @precondition(lambda self: self.moves)
    @rule(which=any_one)
    def move(self, which: int) -> None:
        move = self.moves.pop(which % len(self.moves))
        shuffle, target = move.shuffle, move.target
        if self.servers.incarnation(target) != move.target_incarnation:
            return
        duplicates = self.servers.running[target].take_copies(move.blocks)
        self.registry.overview.servers()
        self.known.expire()
        version, lost = health(self.registry, shuffle.name)
        moves = dict.fromkeys(move.partitions, target)
        call = (shuffle.name, moves, move.origin, move.epoch, move.version)
        if (len(shuffle.sources), version) != (move.epoch, move.version):
            with pytest.raises(PlacementChangedError):
                self.registry.moves.record(*call)
        elif not self.can_take(move):
            with pytest.raises(ProtocolError):
                self.registry.moves.record(*call)
        else:
            assert not any(self.counts(shuffle, block) for block in duplicates)
            self.registry.moves.record(*call)
            shuffle.moved_in = version + 1
            assert health(self.registry, shuffle.name) == (version + 1, lost)

    def counts(self, shuffle: ModelShuffle, block: Block) -> bool:
        """Return whether readers get this block."""
        _, partition, source = block
        generation = int(
            self.registry._state.shuffles[shuffle.name].placement.generations[partition]
        )
        return any(c.source == source and c.counts_for(generation) for c in shuffle.commits)

    def can_take(self, move: ModelMove) -> bool:
        """Return whether the target takes partitions and has no stale replica of them."""
        shuffle, target = move.shuffle, move.target
        if target not in self.known.open_for_partitions(avoided=shuffle.avoided):
            return not move.partitions
        stale = self.registry._state.shuffles[shuffle.name].placement.stale_replicas
        return not any((partition, target) in stale for partition in move.partitions)

    @if_shuffles
    @rule(which=any_one, origin=locations, other=any_one)
    def copy_and_move(self, which: int, origin: str, other: int) -> None:
        before = len(self.moves)
        self.copy_partitions(which, origin, other)
        if len(self.moves) > before:
            self.move(before)

    @if_shuffles
    @rule(which=any_one, map_id=maps, origin=locations, other=any_one)
    def move_while_a_map_is_run(self, which: int, map_id: int, origin: str, other: int) -> None:
        writer = self.open(self.shuffle(which), map_id)
        if writer is not None and self.servers.put(writer, None):
            self.copy_and_move(which, origin, other)
            self.commit_writer(writer)
