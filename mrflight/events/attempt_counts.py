"""Counts what the attempt does that runs in this process: bytes that it moves, rows that it scans.

A worker runs one attempt at a time, so that what sends, fetches and spills need not know of tasks.
Other processes count as well, and nobody asks them.
"""

from __future__ import annotations

from collections import Counter

from mrflight.events.kinds import OperatorWork
from mrflight.events.operator_work import added


class AttemptCounts:
    """What was done since the counts began.

    Each of them is added to by one thread at a time.
    """

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        """The bytes of blocks, by the location of the data server that they were sent to."""
        self.fetched: Counter[str] = Counter()
        """The bytes of blocks, by the location that they came from."""
        self.spilled_bytes = 0
        self.operators: tuple[OperatorWork, ...] = ()
        """What the operators of a query did."""
        self.scanned_rows = 0
        """The rows that a query read of its parts of files."""
        self.shared_rows = 0
        """The rows that a query read of files that all of its tasks read."""
        self.input_bytes = 0
        """The bytes of the events that were read of a stream."""

    def begin(self) -> None:
        """Count from 0 on."""
        self.sent.clear()
        self.fetched.clear()
        self.spilled_bytes = 0
        self.operators = ()
        self.scanned_rows = self.shared_rows = self.input_bytes = 0

    def add_run(
        self, operators: tuple[OperatorWork, ...], scanned_rows: int, shared_rows: int
    ) -> None:
        """Add a run of a query's plan, of which there is one for each partition."""
        self.operators = added(self.operators, operators)
        self.scanned_rows += scanned_rows
        self.shared_rows = max(self.shared_rows, shared_rows)


COUNTS = AttemptCounts()
"""Those of this process."""
