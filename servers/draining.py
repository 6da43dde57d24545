"""What a data server does with its partitions before it stops: it moves them to others.

A partition's committed blocks are copied to another server, those of attempts that are committed
meanwhile as well, until the metadata server finds that there are no more and changes the
placement. Attempts that were begun before that are then refused their commit and made again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from mrflight.errors import (
    DeadlineExceededError,
    MapOutputLostError,
    MrflightError,
    ProtocolError,
    ServerUnavailableError,
    ShuffleNotFoundError,
    SpillError,
)
from mrflight.ids import MapAttempt
from mrflight.shuffle.client.metadata_client import MetadataClient
from mrflight.shuffle.store.block_store import BlockStore
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.partition_info import PartitionInfo
from mrflight.shuffle.wire.protocol import MovePartitions

from .drain_copies import COPY_S, Copier, Copies
from .membership import Membership

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.2
_PATIENCE_S = 5.0
"""With a metadata server that cannot be reached: it may be starting anew, in a second or two."""


class Draining:
    """Empties one data server, whose membership knows that it drains."""

    def __init__(
        self, store: BlockStore, membership: Membership, metadata: str, copy_s: float = COPY_S
    ) -> None:
        self._store = store
        self._copier = Copier(store, copy_s)
        self._membership = membership
        self._connections = Connections()
        self._metadata = MetadataClient(metadata, self._connections, _PATIENCE_S)
        self._targets: dict[tuple[str, int], str] = {}
        self._offered: dict[str, set[str]] = {}
        self._failing: set[str] = set()
        self._incarnations: dict[str, str] = {}
        self._copied: dict[tuple[str, int], set[MapAttempt]] = {}
        self._spoilt: set[tuple[str, int, str]] = set()
        self._reasons: dict[str, str] = {}
        self._pause = threading.Event()

    def run(self) -> None:
        """Return when nothing is held that only this server has, or nobody can ask for it.

        What cannot be moved is waited for to be dropped, however long that takes.
        """
        try:
            while held := [name for name in self._store.shuffles() if not self._is_free_of(name)]:
                log.debug("still held: %s", held)
                self._pause.wait(_LOOK_EVERY_S)
        except (ServerUnavailableError, DeadlineExceededError) as error:
            log.warning("nobody can ask for what is held any more: %s", error)
        finally:
            self._copier.close()
            self._connections.close()

    def _is_free_of(self, shuffle_id: str) -> bool:
        """Move what can be moved of a shuffle; whether nothing depends on this server then.

        ServerUnavailableError or DeadlineExceededError where the metadata server cannot be asked.
        """
        try:
            plan = self._metadata.plan_move(shuffle_id, self._membership.location)
            targets = dict(zip(plan.partitions, plan.targets, strict=False))
            movable = self._choose_targets(shuffle_id, targets)
            if movable:
                self._move(shuffle_id, movable)
            return len(movable) == len(plan.partitions)
        except MrflightError as error:
            by_others = error.location not in (None, self._metadata.location)
            if isinstance(error, ShuffleNotFoundError) and not by_others:
                return True  # it has been dropped; a target may have dropped only what it had
            is_unreachable = isinstance(error, ServerUnavailableError | DeadlineExceededError)
            if is_unreachable and error.location == self._metadata.location:
                raise
            if self._reasons.get(shuffle_id) != str(error):
                log.info("shuffle %s is not moved yet: %s", shuffle_id, error)
                self._reasons[shuffle_id] = str(error)
            return False

    def _choose_targets(self, shuffle_id: str, planned: dict[int, str]) -> list[int]:
        """The partitions that can go somewhere: where they were going, or else as planned.

        Where that target is spoilt, another one that was offered for any partition will do, those
        that have failed for others last.
        """
        offered = self._offered.setdefault(shuffle_id, set())
        offered.update(planned.values())
        for partition, target in planned.items():
            for each in sorted((target, *sorted(offered)), key=self._failing.__contains__):
                if (shuffle_id, partition, each) not in self._spoilt:
                    self._targets.setdefault((shuffle_id, partition), each)
                    break
        return [partition for partition in planned if (shuffle_id, partition) in self._targets]

    def _move(self, shuffle_id: str, partitions: list[int]) -> None:
        described = self._metadata.describe_shuffle(shuffle_id)
        infos = self._infos(shuffle_id, partitions)
        epoch = infos[partitions[0]].epoch
        self._know_targets({self._targets[shuffle_id, partition] for partition in partitions})
        wanted: dict[tuple[MapAttempt, str], list[int]] = {}
        for partition in partitions:
            copied = self._copied.setdefault((shuffle_id, partition), set())
            counting = self._membership.winners(shuffle_id, epoch, infos[partition].generation)
            target = self._targets[shuffle_id, partition]
            for source in counting:
                if source not in copied:
                    wanted.setdefault((source, target), []).append(partition)
        for (source, target), missing in wanted.items():
            count, token = len(described.placement), described.token
            self._copy(Copies(shuffle_id, source, target, missing, count, token))
        targets = [self._targets[shuffle_id, partition] for partition in partitions]
        self._know_targets(set(targets))
        here = self._membership.location
        request = MovePartitions(shuffle_id, here, partitions, targets, epoch, described.version)
        try:
            self._metadata.move_partitions(request)
        except ProtocolError:  # a target may have gone since all was copied there, or be avoided
            there = {server.location for server in self._metadata.status().servers}
            going = zip(partitions, targets, strict=True)
            gone = [partition for partition, at in going if at not in there]
            self._spoil(shuffle_id, gone or partitions)
            raise
        log.info("%d partitions of shuffle %s have been moved", len(partitions), shuffle_id)

    def _infos(self, shuffle_id: str, partitions: Sequence[int]) -> dict[int, PartitionInfo]:
        try:
            found = self._metadata.partitions(shuffle_id)[1]
        except MapOutputLostError:  # of others, perhaps
            each = (self._metadata.partitions(shuffle_id, only) for only in partitions)
            found = [info for _, infos in each for info in infos]
        return {info.partition: info for info in found}

    def _know_targets(self, targets: set[str]) -> None:
        """That each is the process which has the copies; ServerUnavailableError where one is not.

        What was copied to another process at its location is gone, and is copied again.
        """
        for target in sorted(targets):
            try:
                incarnation = self._copier.incarnation_of(target)
            except MrflightError:
                self._give_up(target)
                raise
            known = self._incarnations.setdefault(target, incarnation)
            if known != incarnation:
                self._incarnations[target] = incarnation
                for key in [key for key, at in self._targets.items() if at == target]:
                    self._copied.pop(key, None)
                self._spoilt = {key for key in self._spoilt if key[2] != target}
                raise ServerUnavailableError(f"another server was started at {target}")

    def _copy(self, copies: Copies) -> None:
        """Copy to a target; what cannot be read here is reported lost, and raised in the end."""
        try:
            unreadable = self._copier.copy(copies)
        except MrflightError as error:
            self._spoil(copies.shuffle_id, copies.partitions)
            if isinstance(error, ServerUnavailableError | DeadlineExceededError | SpillError):
                self._give_up(copies.target)
            raise
        for partition in copies.partitions:
            self._copied[copies.shuffle_id, partition].add(copies.source)
        if not unreadable:
            return
        # Its maps write it again, elsewhere. Nobody else has it, so that nothing is lost by that.
        self._spoil(copies.shuffle_id, list(unreadable))
        here, lost = self._membership.location, list(unreadable)
        self._metadata.report_loss(copies.shuffle_id, here, lost, token=copies.token)
        raise next(iter(unreadable.values()))

    def _give_up(self, target: str) -> None:
        """A target has failed: what is still to go there goes elsewhere, if there is another."""
        self._failing.add(target)
        for shuffle_id, partition in [key for key, at in self._targets.items() if at == target]:
            if self._copied.get((shuffle_id, partition)):
                self._spoil(shuffle_id, [partition])
            else:
                del self._targets[shuffle_id, partition]

    def _spoil(self, shuffle_id: str, partitions: Sequence[int]) -> None:
        """Targets may have a part of an attempt's blocks, which would be read twice, or nothing."""
        for partition in partitions:
            target = self._targets.pop((shuffle_id, partition))
            self._spoilt.add((shuffle_id, partition, target))
            self._copied.pop((shuffle_id, partition), None)
