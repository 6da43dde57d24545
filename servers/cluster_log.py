"""What happened to the servers of a cluster, for its page."""

from __future__ import annotations

import threading
import time
from collections import deque

from mrflight.page.contract import IncidentRow
from mrflight.shuffle.metadata.events import (
    AnyEvent,
    PartitionsPlaced,
    ServerDraining,
    ServerGone,
    ServerJoined,
)
from mrflight.units import format_count

_MAX_INCIDENTS = 1_000


class ClusterLog:
    """What happened to the servers of a cluster: the last of it, and a count of all."""

    def __init__(self) -> None:
        self.began = time.time()
        self._changed = threading.Condition()
        self._rows: deque[IncidentRow] = deque(maxlen=_MAX_INCIDENTS)
        self._count = 0
        self._events = 0

    def note(self, event: AnyEvent) -> None:
        """Note an event that has happened, and what it says of a server or of what it held."""
        row = self._row(event)
        with self._changed:
            self._events += 1
            if row is not None:
                self._rows.append(row)
                self._count += 1
            self._changed.notify_all()

    def wait(self, position: int, timeout_s: float) -> int:
        """Wait until there are more events than ``position``; return how many there are now."""
        with self._changed:
            self._changed.wait_for(lambda: self._events > position, timeout_s)
            return self._events

    def rows(self) -> list[IncidentRow]:
        with self._changed:
            return list(self._rows)

    @property
    def count(self) -> int:
        """All incidents, also those of before the last 1,000."""
        return self._count

    def _row(self, event: AnyEvent) -> IncidentRow | None:
        at = round(time.time() - self.began, 1)
        match event:
            case ServerJoined():
                return IncidentRow(at, f"{event.location} has joined", "it takes partitions")
            case ServerDraining():
                what = f"{event.location} is about to stop"
                return IncidentRow(at, what, "it gives what only it holds to others")
            case ServerGone():
                what = f"{event.location} has stopped, or was declared lost"
                return IncidentRow(at, what, "it takes no partitions any more")
            case PartitionsPlaced() if event.lost:
                lost = format_count(len(event.lost), "partition")
                what = f"the rows of {lost} of shuffle {event.id} were lost"
                return IncidentRow(at, what, "they have another place, and are written again")
        return None
