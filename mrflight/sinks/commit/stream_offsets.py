"""The offsets of a stream that a commit moves on, by compare and swap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec


class StreamOffsets(msgspec.Struct, frozen=True):
    """The next offsets of a stream before and after a commit.

    Both are by source partition, ``<cluster>/<topic id>/<partition>``. A partition that the table
    does not know yet is not in ``before``.
    """

    stream: str
    """The name of the stream."""
    before: Mapping[str, int]
    """The next offsets that the table must have recorded."""
    after: Mapping[str, int]
    """The next offsets that it has recorded once the commit is made."""
    notes: Mapping[str, Any] = {}
    """Further facts of the batch, which its log entry gets as JSON."""
    forgotten: tuple[str, ...] = ()
    """The names of partitions that ``after`` has under other names, and that the table need not
    have any more. The transactions of a Delta table cannot be removed."""

    def note(self) -> dict[str, Any]:
        """Return what the commit records of the batch, as JSON has it."""
        offsets = {
            partition: [self.before.get(partition), after]
            for partition, after in self.after.items()
        }
        return {**self.notes, "stream": self.stream, "offsets": offsets}


class RecordedBatch(NamedTuple):
    """The note of a commit, as the history of its table has it."""

    version: int
    """The version, or the snapshot, of the table."""
    time_ms: int
    note: Mapping[str, Any]
