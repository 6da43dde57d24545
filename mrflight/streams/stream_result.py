"""What a stream has done, while it runs and at its end."""

from __future__ import annotations

import msgspec

from mrflight.units import format_count, format_rate


class StreamResult(msgspec.Struct, frozen=True):
    """The result of a stream, which ``--json`` prints as its last line."""

    stream: str
    state: str
    """``caught_up`` if it came to the ends that it began with, ``stopped`` by a signal, or
    ``failed`` with an ``error``. While it runs, ``running``."""
    rows_in: int = 0
    """The events that were decoded and committed."""
    rows_out: int = 0
    """The rows that were committed."""
    rejected: int = 0
    """The events that could not be decoded, and were left out."""
    commits: int = 0
    lag_rows: int = 0
    """The events that the topics had and the table had not, when that was looked at last."""
    offsets: dict[str, int] = {}
    """The next offset of each partition that the table has recorded: ``topic/partition``."""
    seconds: float = 0.0
    commit_ms: float = 0.0
    """How long the last commit took."""
    freshness_ms: float = 0.0
    """How old the oldest event of the last commit was at most when it could be read, in
    milliseconds since it was seen in its topic."""
    table: str = ""
    version: int | None = None
    """The version of the last commit."""
    error: str | None = None

    def summary(self) -> str:
        """Return a line or two for people."""
        rate = format_rate(self.rows_in / self.seconds, "rows") if self.seconds else "0 rows/s"
        rejected = f", {format_count(self.rejected, 'event')} rejected" if self.rejected else ""
        version = "" if self.version is None else f", version {self.version}"
        return (
            f"{format_count(self.rows_in, 'event')} in, {format_count(self.rows_out, 'row')} out"
            f"{rejected}, {format_count(self.commits, 'commit')} in {self.seconds:.1f} s "
            f"({rate})\n{self.table}{version}"
        )
