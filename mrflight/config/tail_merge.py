"""How the rows of a tail change the table of a stream that merges into it."""

from __future__ import annotations

import msgspec


class TailMerge(msgspec.Struct, frozen=True):
    """The columns by which the changes in a tail are merged into its table."""

    keys: tuple[str, ...]
    """The columns that identify a row."""
    order_by: str
    """The column whose greatest value is that of the last change of a key."""
