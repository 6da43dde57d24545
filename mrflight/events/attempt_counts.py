"""Counts the bytes that the attempt moves that runs in this process.

A worker runs one attempt at a time, so that what sends, fetches and spills need not know of tasks.
Other processes count as well, and nobody asks them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class AttemptCounts:
    """The bytes that were moved since the counts began.

    Each of them is added to by one thread at a time.
    """

    sent: Counter[str] = field(default_factory=Counter)
    """The bytes of blocks, by the location of the data server that they were sent to."""
    fetched: Counter[str] = field(default_factory=Counter)
    """The bytes of blocks, by the location that they came from."""
    spilled_bytes: int = 0

    def begin(self) -> None:
        """Count from 0 on."""
        self.sent.clear()
        self.fetched.clear()
        self.spilled_bytes = 0


COUNTS = AttemptCounts()
"""Those of this process."""
