"""The messages that say what servers hold: their heartbeats, and the status of a cluster."""

from __future__ import annotations

import msgspec

from mrflight.shuffle.wire.protocol import Int64, Location, Message


class StoreUse(Message, frozen=True, omit_defaults=True):
    """What a data server holds in memory and on disk, and the most that it holds in memory."""

    held_bytes: Int64 = 0
    spilled_bytes: Int64 = 0
    budget_bytes: Int64 = 0
    """Beyond a part of it, the server spills; 0 from a server that does not tell."""


NOTHING_HELD = StoreUse()


class Heartbeat(Message, frozen=True):
    """Report that a data server is alive, and the shuffles that it holds."""

    location: Location
    shuffles: list[str] = msgspec.field(default_factory=list)
    stored_bytes: Int64 = 0
    incarnation: str = ""
    tokens: list[str] = msgspec.field(default_factory=list)
    """The tokens of the shuffles, in the same order; empty from a server that lacks them."""
    use: StoreUse = NOTHING_HELD


class HeartbeatResponse(Message, frozen=True):
    """Whether the server is registered, and the shuffles that it holds and must drop.

    A server that is not registered must drop everything and register again.
    """

    registered: bool
    drop: list[str]


class ServerStats(Message, frozen=True, omit_defaults=True):
    """The content of a data server. Bytes are those of all blocks, including spilled ones."""

    shuffles: int
    blocks: int
    size_bytes: int
    memory_bytes: int = 0
    """The bytes that count against the server's memory budget."""
    spilled_blocks: int = 0
    spilled_bytes: int = 0
    dead_bytes: int = 0
    """Bytes of discarded attempts on disk, which are freed when the shuffle is dropped."""


class ServerStatus(Message, frozen=True):
    """A live data server as the metadata server sees it."""

    location: str
    partitions: int
    stored_bytes: int
    use: StoreUse = NOTHING_HELD
    """As of its last heartbeat."""


class ShuffleStatus(Message, frozen=True):
    """A shuffle as the metadata server sees it."""

    id: str
    partitions: int
    maps: int
    rows: int
    size_bytes: int
    job: str = ""


class LostServer(Message, frozen=True):
    """A data server that is gone, or counts as lost."""

    number: int
    """From 0 on, since the metadata server was started."""
    location: str
    cause: str


class StatusResponse(Message, frozen=True):
    """The servers and shuffles of a cluster."""

    servers: list[ServerStatus]
    shuffles: list[ShuffleStatus]
    time_s: float = 0.0
    """The clock of the metadata server, in seconds since 1970; 0 if it is older and tells none."""
    lost: list[LostServer] = msgspec.field(default_factory=list)
    """The last data servers that are gone, the oldest first."""
