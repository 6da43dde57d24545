"""The event logs that a data server owns: each has a thread that writes it."""

from __future__ import annotations

import threading

from mrflight.errors import LogOwnerChangedError, ServerUnavailableError
from mrflight.ids import ShuffleKey, same_token
from mrflight.shuffle.client.log_client import describe_log
from mrflight.shuffle.client.metadata_client import MetadataClient
from mrflight.shuffle.log.group_commit import GroupCommit
from mrflight.shuffle.log.log_folder import LogFolder
from mrflight.shuffle.log.log_totals import LogTotals
from mrflight.shuffle.wire.connections import Connections
from mrflight.shuffle.wire.log_protocol import LogPlacement
from mrflight.shuffle.wire.log_rights import LogRight, check_rights, rights_of
from mrflight.system.closeable import Closeable

from .log_replicas import LogReplicas
from .log_replication import LogReplication
from .membership import Membership


class OwnedLog(Closeable):
    """A log in the epoch in which this server owns it."""

    def __init__(
        self, placement: LogPlacement, commit: GroupCommit, replication: LogReplication
    ) -> None:
        self.placement = placement
        self.commit = commit
        self._replication = replication

    def is_owner(self) -> bool:
        """Return whether no other server can own the log by now."""
        return self._replication.is_owner()

    def is_current(self, placement: LogPlacement) -> bool:
        """Return whether the log is still owned as it was, by what the metadata server says."""
        own = self.placement
        return self._replication.is_same_member() and (own.token, own.epoch, own.owner) == (
            placement.token,
            placement.epoch,
            placement.owner,
        )

    def close(self) -> None:
        self.commit.close()
        self._replication.close()


class OwnedLogs(Closeable):
    """Finds or opens the logs that this server owns. Safe for many threads."""

    def __init__(self, folder: LogFolder, membership: Membership, totals: LogTotals) -> None:
        self._totals = totals
        self._folder = folder
        self.replicas = LogReplicas(folder, self.describe, self.resign)
        self._membership = membership
        self._lock = threading.Lock()
        self._logs: dict[str, OwnedLog] = {}
        self._is_closed = False

    def describe(self, name: str) -> LogPlacement:
        """Ask the metadata server where a log is; the placement has the secret of the log."""
        client = self._membership.client
        with Connections(client) as connections:
            metadata = MetadataClient(
                self._membership.metadata_location, connections, client.timeouts.reconnect_s
            )
            return describe_log(metadata, ShuffleKey(name))

    def find(self, key: ShuffleKey, *needed: LogRight) -> OwnedLog:
        """Return a log; raise LogOwnerChangedError if another server owns it.

        Raises EventLogNotFoundError if there is none with this token, and AccessDeniedError if the
        token gives none of the rights that are ``needed``.
        """
        known = self._logs.get(key.id)
        if known is None or not known.is_owner() or not _is_of(known, key):
            known = self._found(key.id)
        check_rights(key, known.placement.token, *needed)
        return known

    def _found(self, name: str) -> OwnedLog:
        placement = self.describe(name)
        with self._lock:
            known = self._logs.get(name)
            if known is not None and known.is_current(placement):
                return known
            if known is not None:
                del self._logs[name]
                known.close()
            if self._is_closed:
                raise ServerUnavailableError(f"{self._membership.location} is stopping")
            if placement.owner != self._folder.store:
                where = placement.owner_location or "a data server that cannot be reached now"
                raise LogOwnerChangedError(
                    f"event log {name!r} is owned by {where}, and not by this data server; ask "
                    "the metadata server where it is"
                )
            self._logs[name] = self._opened(placement)
            return self._logs[name]

    def _opened(self, placement: LogPlacement) -> OwnedLog:
        self.replicas.begin_epoch(placement)
        log = self._folder.open(placement.key)
        replication = LogReplication(placement, self._folder.store, log, self._membership)
        return OwnedLog(placement, GroupCommit(log, replication, self._totals), replication)

    def resign(self, key: ShuffleKey) -> None:
        """Own a log no more, as another server does."""
        with self._lock:
            known = self._logs.get(key.id)
            if known is not None and same_token(key.token, known.placement.token):
                del self._logs[key.id]
                known.close()

    def drop(self, key: ShuffleKey) -> None:
        """Delete a log that was dropped."""
        self.resign(key)
        self.replicas.forget(key)
        self._folder.remove(key)

    def close(self) -> None:
        """Acknowledge what is queued; own nothing any more."""
        with self._lock:
            self._is_closed = True
            for each in self._logs.values():
                each.close()
            self._logs.clear()


def _is_of(known: OwnedLog, key: ShuffleKey) -> bool:
    return not key.token or bool(rights_of(key.token, known.placement.token))
