"""Counts the bytes that the attempt moves that runs in this process.

A worker runs one attempt at a time, so that what sends, fetches and spills need not know of tasks.
Other processes count as well, and nobody asks them.
"""

from __future__ import annotations

from collections import Counter


class AttemptCounts:
    """The bytes that were moved since the counts began.

    Each of them is added to by one thread at a time.
    """

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        """The bytes of blocks, by the location of the data server that they were sent to."""
        self.fetched: Counter[str] = Counter()
        """The bytes of blocks, by the location that they came from."""
        self.spilled_bytes = 0

    def begin(self) -> None:
        """Count from 0 on."""
        self.sent.clear()
        self.fetched.clear()
        self.spilled_bytes = 0


COUNTS = AttemptCounts()
"""Those of this process."""
