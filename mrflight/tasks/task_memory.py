"""The memory and the local folder of a reduce task."""

from __future__ import annotations

from pathlib import Path

import msgspec


class TaskMemory(msgspec.Struct, frozen=True):
    """The memory of one reduce task, and the folder for rows that do not fit."""

    memory_bytes: int
    folder: Path
    """The folder in which a private folder is made if needed. The task removes that folder."""

    @property
    def rows_bytes(self) -> int:
        """The Arrow bytes of the rows that an operator works on at a time: a sixth of the memory.

        Grouping rows with distinct keys takes six to seven times their bytes in addition (204 MiB
        for the sums and 236 MiB for a count_distinct of a table of 32 MiB). Sorting takes twice
        their bytes. These figures are the growth of a process.
        """
        return max(1, self.memory_bytes // 6)
