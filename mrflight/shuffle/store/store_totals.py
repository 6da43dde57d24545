"""What a store has done since it was made, for its metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class StoreTotals:
    """Sums that only grow. They are changed and read with the lock of the store."""

    put_blocks: int = 0
    put_bytes: int = 0
    read_blocks: int = 0
    """Blocks are counted when a reader takes them, also those that are read from disk."""
    read_bytes: int = 0
    spilled_bytes: int = 0
    """The bytes of blocks that were written to disk."""
    waited_s: float = 0.0
    """How long puts have waited for memory, all together."""
