"""The checks of a shuffle that is to be created."""

from __future__ import annotations

from mrflight.errors import ProtocolError
from mrflight.ids import MAX_PARTITIONS, check_shuffle_id

MAX_SHUFFLE_LEASE_S = 24 * 3600.0
"""Jobs renew leases of a minute every few seconds. A client that is gone for a day does not come
back, and a longer lease would keep the memory of its shuffle from others."""


def check_new_shuffle(
    shuffle_id: str, partitions: int, replicas: int, lease_s: float | None
) -> None:
    """Raise ProtocolError if a shuffle cannot be created like this."""
    check_shuffle_id(shuffle_id)
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise ProtocolError(
            f"a shuffle must have 1 to {MAX_PARTITIONS} partitions, not {partitions}"
        )
    if replicas < 1:
        raise ProtocolError(f"a partition must have at least 1 replica, not {replicas}")
    if lease_s is not None and not 0 < lease_s <= MAX_SHUFFLE_LEASE_S:
        raise ProtocolError(
            f"the lease of a shuffle must be above 0 and up to {MAX_SHUFFLE_LEASE_S:g} s, "
            f"not {lease_s:g} s"
        )
