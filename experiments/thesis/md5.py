"""The partition of a key: the remainder of its md5 (section 3.1)."""

from __future__ import annotations

from hashlib import md5


def partition_of(key: str, partitions: int) -> int:
    """Return the partition of ``key``, from 0."""
    return int.from_bytes(md5(key.encode()).digest(), "big") % partitions
