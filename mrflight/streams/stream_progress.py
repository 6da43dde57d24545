"""What a stream says while it runs, and the counts of its result."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from mrflight.streams.committer import CommittedBatch
from mrflight.streams.stream_result import StreamResult
from mrflight.units import format_count, format_rate

_SAY_EVERY_S = 10.0


class StreamProgress:
    """Counts the commits of a stream. Safe for several threads."""

    def __init__(self, stream: str, table: str, say: Callable[[str], None]) -> None:
        """``say`` shows a line to people."""
        self._stream = stream
        self._table = table
        self._say = say
        self._lock = threading.Lock()
        self._began = self._said_at = time.monotonic()
        self._said_rows = 0
        self._rows_in = self._rows_out = self._rejected = self._commits = 0
        self._version: int | None = None
        self._commit_s = self._age_s = 0.0
        self._offsets: dict[str, int] = {}
        self.lag = 0
        """The events that were waiting when the topics were looked at last."""

    def say(self, text: str) -> None:
        """Show a line to people."""
        self._say(text)

    def committed(self, batch: CommittedBatch, age_s: float) -> None:
        """Count a commit, and show it if the last one that was shown is some seconds ago.

        ``age_s`` is how old its oldest event is at most, since it was seen in its topic.
        """
        with self._lock:
            self._rows_in += batch.rows_in
            self._rows_out += batch.rows_out
            self._rejected += batch.rejected
            self._commits += 1
            self._version, self._commit_s, self._age_s = batch.version, batch.commit_s, age_s
            self._offsets = {_short(name): offset for name, offset in batch.recorded.items()}
            now = time.monotonic()
            seconds = now - self._said_at
            if seconds < _SAY_EVERY_S and self._commits > 1:
                return
            rate = (self._rows_in - self._said_rows) / max(seconds, 1e-3)
            self._said_at, self._said_rows = now, self._rows_in
        version = "" if batch.version is None else f"version {batch.version}: "
        rejected = f", {self._rejected:,} rejected" if self._rejected else ""
        self._say(
            f"{version}{format_count(self._rows_in, 'event')}{rejected}, "
            f"{format_rate(rate, 'rows')}, {self.lag:,} waiting"
        )

    def result(self, state: str, error: str | None = None) -> StreamResult:
        """Return the counts until now."""
        with self._lock:
            return StreamResult(
                stream=self._stream,
                state=state,
                rows_in=self._rows_in,
                rows_out=self._rows_out,
                rejected=self._rejected,
                commits=self._commits,
                lag_rows=self.lag,
                offsets=dict(self._offsets),
                seconds=round(time.monotonic() - self._began, 3),
                commit_ms=round(self._commit_s * 1000, 1),
                freshness_ms=round(self._age_s * 1000, 1),
                table=self._table,
                version=self._version,
                error=error,
            )


def _short(name: str) -> str:
    """Return ``topic/partition`` of the name under which a table records a partition."""
    _, topic, _, partition = name.split("/")
    return f"{topic}/{partition}"
