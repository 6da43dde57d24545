"""How old the events of a commit are, since the stream has seen them in their topics."""

from __future__ import annotations

from collections import deque


class Freshness:
    """When the oldest event of each batch was seen first. Times are those of one clock."""

    def __init__(self) -> None:
        self._waiting_since: float | None = None
        self._cut: deque[float] = deque()
        """Those of the batches that are cut and not committed yet."""

    def look(self, count: int, now: float) -> None:
        """Learn that so many events wait for a batch."""
        if not count:
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = now

    def cut(self, left: int, now: float) -> None:
        """Learn that a batch was cut, and how many events still wait."""
        since = now if self._waiting_since is None else self._waiting_since
        self._cut.append(since)
        self._waiting_since = since if left else None

    def committed(self, now: float) -> float:
        """Return how old the oldest event of the next batch is at most, as it is committed."""
        return now - self._cut.popleft()

    def again(self) -> None:
        """Learn that what was cut and not committed is cut again."""
        if self._cut:
            self._waiting_since = self._cut[0]
            self._cut.clear()
