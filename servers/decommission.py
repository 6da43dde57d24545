"""Moves the partitions of a data server to other servers before it stops.

The committed blocks of a partition are copied to another server, including those of attempts that
are committed meanwhile. Once there are no more, the metadata server changes the placement. Attempts
that started before that cannot commit any more, and run again.
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
from mrflight.shuffle.wire.move_protocol import MovePartitions
from mrflight.shuffle.wire.partition_info import PartitionInfo

from .block_copier import COPY_S, BlockCopier, CopyRequest
from .membership import Membership

log = logging.getLogger(__name__)

_CHECK_EVERY_S = 0.2
_RETRY_FOR_S = 5.0
"""The time for retries if the metadata server cannot be reached. A restart takes 1 or 2 s."""


class Decommission:
    """Empties one data server, after its membership has started to drain."""

    def __init__(
        self, store: BlockStore, membership: Membership, metadata: str, copy_s: float = COPY_S
    ) -> None:
        self._store = store
        self._copier = BlockCopier(store, membership.client.identity, copy_s)
        self._membership = membership
        self._connections = Connections(membership.client)
        self._metadata = MetadataClient(metadata, self._connections, _RETRY_FOR_S)
        self._targets: dict[tuple[str, int], str] = {}
        self._offered: dict[str, set[str]] = {}
        self._failing: set[str] = set()
        self._incarnations: dict[str, str] = {}
        self._copied: dict[tuple[str, int], set[MapAttempt]] = {}
        self._invalid_targets: set[tuple[str, int, str]] = set()
        self._reasons: dict[str, str] = {}
        self._pause = threading.Event()

    def run(self) -> None:
        """Return when no shuffle depends on this server, or the metadata server is gone.

        Partitions that cannot be moved are held until they are dropped, however long that takes.
        """
        try:
            while held := [name for name in self._store.shuffles() if not self._is_free_of(name)]:
                log.debug("still held: %s", held)
                self._pause.wait(_CHECK_EVERY_S)
        except (ServerUnavailableError, DeadlineExceededError) as error:
            log.warning("stopping, as no client can find the partitions here any more: %s", error)
        finally:
            self._copier.close()
            self._connections.close()

    def _is_free_of(self, shuffle_id: str) -> bool:
        """Move what can be moved of a shuffle, and return whether it needs this server no more.

        Raises ServerUnavailableError or DeadlineExceededError if the metadata server cannot be
        reached.
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
                return True  # it has been dropped, and not only by a target
            is_unreachable = isinstance(error, ServerUnavailableError | DeadlineExceededError)
            if is_unreachable and error.location == self._metadata.location:
                raise
            if self._reasons.get(shuffle_id) != str(error):
                log.info("shuffle %s is not moved yet: %s", shuffle_id, error)
                self._reasons[shuffle_id] = str(error)
            return False

    def _choose_targets(self, shuffle_id: str, planned: dict[int, str]) -> list[int]:
        """Return the partitions that have a target: their earlier one, or else the planned one.

        If the planned target is invalid, any server that was planned for another partition is
        taken, and servers that have failed come last.
        """
        offered = self._offered.setdefault(shuffle_id, set())
        offered.update(planned.values())
        for partition, target in planned.items():
            for each in sorted((target, *sorted(offered)), key=self._failing.__contains__):
                if (shuffle_id, partition, each) not in self._invalid_targets:
                    self._targets.setdefault((shuffle_id, partition), each)
                    break
        return [partition for partition in planned if (shuffle_id, partition) in self._targets]

    def _move(self, shuffle_id: str, partitions: list[int]) -> None:
        described = self._metadata.describe_shuffle(shuffle_id)
        infos = self._infos(shuffle_id, partitions)
        epoch = infos[partitions[0]].epoch
        self._check_targets({self._targets[shuffle_id, partition] for partition in partitions})
        missing: dict[tuple[MapAttempt, str], list[int]] = {}
        for partition in partitions:
            copied = self._copied.setdefault((shuffle_id, partition), set())
            counting = self._membership.committed_attempts(
                shuffle_id, epoch, infos[partition].generation
            )
            target = self._targets[shuffle_id, partition]
            for source in counting:
                if source not in copied:
                    missing.setdefault((source, target), []).append(partition)
        for (source, target), to_copy in missing.items():
            count, token = len(described.placement), described.token
            self._copy(CopyRequest(shuffle_id, source, target, to_copy, count, token))
        targets = [self._targets[shuffle_id, partition] for partition in partitions]
        self._check_targets(set(targets))
        here = self._membership.location
        request = MovePartitions(shuffle_id, here, partitions, targets, epoch, described.version)
        try:
            self._metadata.move_partitions(request)
        except ProtocolError:  # a target may have gone since the copy, or be avoided
            live = {server.location for server in self._metadata.status().servers}
            planned = zip(partitions, targets, strict=True)
            gone = [partition for partition, at in planned if at not in live]
            self._invalidate(shuffle_id, gone or partitions)
            raise
        log.info("%d partitions of shuffle %s have been moved", len(partitions), shuffle_id)

    def _infos(self, shuffle_id: str, partitions: Sequence[int]) -> dict[int, PartitionInfo]:
        try:
            found = self._metadata.partitions(shuffle_id)[1]
        except MapOutputLostError:  # perhaps only other partitions are lost
            each = (self._metadata.partitions(shuffle_id, only) for only in partitions)
            found = [info for _, infos in each for info in infos]
        return {info.partition: info for info in found}

    def _check_targets(self, targets: set[str]) -> None:
        """Raise ServerUnavailableError if a target is not the process that has the copies.

        Copies in an earlier process at that location are gone, and are made again.
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
                self._invalid_targets = {key for key in self._invalid_targets if key[2] != target}
                raise ServerUnavailableError(f"another server was started at {target}")

    def _copy(self, request: CopyRequest) -> None:
        """Copy to a target; partitions that cannot be read are reported lost, and raise."""
        try:
            unreadable = self._copier.copy(request)
        except MrflightError as error:
            self._invalidate(request.shuffle_id, request.partitions)
            if isinstance(error, ServerUnavailableError | DeadlineExceededError | SpillError):
                self._give_up(request.target)
            raise
        for partition in request.partitions:
            self._copied[request.shuffle_id, partition].add(request.source)
        if not unreadable:
            return
        # The maps write these partitions again, elsewhere. No other server has them, so the report
        # loses nothing else.
        self._invalidate(request.shuffle_id, list(unreadable))
        here, lost = self._membership.location, list(unreadable)
        self._metadata.report_loss(request.shuffle_id, here, lost, token=request.token)
        raise next(iter(unreadable.values()))

    def _give_up(self, target: str) -> None:
        """Send what was to go to a failed target to another one, if there is one."""
        self._failing.add(target)
        for shuffle_id, partition in [key for key, at in self._targets.items() if at == target]:
            if self._copied.get((shuffle_id, partition)):
                self._invalidate(shuffle_id, [partition])
            else:
                del self._targets[shuffle_id, partition]

    def _invalidate(self, shuffle_id: str, partitions: Sequence[int]) -> None:
        """Never use these partitions' targets again: they may have some of an attempt's blocks.

        These would be read twice if they were copied again.
        """
        for partition in partitions:
            target = self._targets.pop((shuffle_id, partition))
            self._invalid_targets.add((shuffle_id, partition, target))
            self._copied.pop((shuffle_id, partition), None)
