"""The idle connections of a process that keeps them for reuse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a job without a shuffle loads no Flight
    from pyarrow import flight

    from mrflight.config.identity import Identity
    from mrflight.shuffle.wire.protocol import SharedMemoryOffer


@dataclass(eq=False)
class Connection:
    """A client of a server, and the memory that the server shares; None if it was not asked yet."""

    client: flight.FlightClient
    offer: SharedMemoryOffer | None = None


kept: dict[tuple[str, Identity], Connection] | None = None
"""The idle connections of a worker or a driver, by location and identity; None if they are not
kept."""


def keep_idle() -> None:
    """Keep closed connections for reuse, in any thread, until the process ends.

    A worker, whose tasks all connect to the same servers, and the driver of one job call this. To
    connect takes 3 ms, and a task may take no more than some tens.
    """
    global kept
    kept = {}
