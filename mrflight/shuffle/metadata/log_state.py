"""The state of an event log at its metadata server."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from mrflight.shuffle.metadata.events import LogCreated, LogPlaced


@dataclass
class EventLogState:
    """A log, and the stores that hold every acknowledged row of it."""

    name: str
    token: str
    replicas: int
    members: list[str]
    """The ids of the ``--log-dir`` of data servers. They stay when a server is gone for a while."""
    owner: str
    epoch: int = 1

    @classmethod
    def create(cls, event: LogCreated) -> EventLogState:
        """Return the state of a new log."""
        return cls(event.name, event.token, event.replicas, list(event.members), event.members[0])

    def apply(self, event: LogPlaced) -> None:
        """Apply a change of members or of the owner."""
        self.epoch, self.owner, self.members = event.epoch, event.owner, list(event.members)


def plan_loss(state: EventLogState, store: str, live: Collection[str]) -> LogPlaced | None:
    """Return the placement of a log whose member ``store`` is lost; None if nothing changes.

    If the owner is lost, a live member takes over in the next epoch. A member that is the only one
    alive stays the owner although it is lost: no other has every acknowledged row.
    """
    others = [each for each in state.members if each != store]
    alive = [each for each in others if each in live]
    if store not in state.members or not alive:
        return None
    if store != state.owner:
        return LogPlaced(state.name, state.epoch, state.owner, others)
    return LogPlaced(state.name, state.epoch + 1, alive[0], others)
