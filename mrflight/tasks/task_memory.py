"""What a reduce task may use of its machine."""

from __future__ import annotations

from pathlib import Path

import msgspec


class TaskMemory(msgspec.Struct, frozen=True):
    """The memory of one reduce task, and where it puts what does not fit."""

    memory_bytes: int
    folder: Path
    """Where a private folder is made, if need be; it is removed with the task."""

    @property
    def rows_bytes(self) -> int:
        """How many Arrow bytes of rows are worked on together: a sixth.

        Grouping keys that come once takes six to seven times their bytes beside them (a table of
        32 MiB, 204 MiB for its sums and 236 MiB for a count_distinct), and sorting them twice:
        experiments/combine.py measures what a process grows by.
        """
        return max(1, self.memory_bytes // 6)
