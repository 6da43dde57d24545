"""What a metadata server has done since it was started, for its metrics."""

from __future__ import annotations

from dataclasses import dataclass

from mrflight.shuffle.metadata.events import (
    AnyEvent,
    MapCommitted,
    PartitionsPlaced,
    ServerGone,
    ServerJoined,
    ShuffleCreated,
    ShuffleDropped,
)


@dataclass
class MetadataTotals:
    """Sums that only grow."""

    servers_joined: int = 0
    servers_left: int = 0
    """Servers that have stopped or were declared lost."""
    shuffles_created: int = 0
    shuffles_dropped: int = 0
    maps_committed: int = 0
    partitions_lost: int = 0
    """Partitions whose rows were lost with a server, and had to be written again."""

    def count(self, event: AnyEvent) -> None:
        """Count an event that has happened. One thread at a time may call it."""
        match event:
            case ServerJoined():
                self.servers_joined += 1
            case ServerGone():
                self.servers_left += 1
            case ShuffleCreated():
                self.shuffles_created += 1
            case ShuffleDropped():
                self.shuffles_dropped += 1
            case MapCommitted():
                self.maps_committed += 1
            case PartitionsPlaced():
                self.partitions_lost += len(event.lost)
