"""What a merge did, in numbers."""

from __future__ import annotations

import msgspec


class MergeCounts(msgspec.Struct, frozen=True):
    """What a merge did to the table that it found; its new rows are the job's ``rows_out``."""

    rows_updated: int = 0
    """Rows of the table in whose place others came."""
    rows_deleted: int = 0
    files_rewritten: int = 0
    """Without such rows; each is another file now."""
    files_removed: int = 0
    """In which there was no other row."""
