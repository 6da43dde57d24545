"""What is known of the rows that a part of a query's plan gives for a partition of whole keys."""

from __future__ import annotations

import msgspec

from mrflight.compute.sql.key_columns import KeyColumn

OR_ONE = "or set shuffle.partitions = 1"
"""What can be done about anything that is not of whole keys."""


class PartitionedPlan(msgspec.Struct, frozen=True):
    """Those of a part of a plan."""

    tables: tuple[str, ...] = ()
    """In partitions, of which they are made: none where everyone has them."""
    key: tuple[KeyColumn, ...] = ()
    """All columns of it where there are tables."""
    has_any: bool = True
    why_not: str | None = None
    """Why they are not those of all partitions together."""
