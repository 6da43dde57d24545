"""What `mrflight ingest verify` has found out about a table."""

from __future__ import annotations

import msgspec

from mrflight.streams.offset_presence import Strays
from mrflight.units import format_count


class CheckedPartition(msgspec.Struct, frozen=True):
    """What the log proves of one partition."""

    topic: str
    partition: int
    first: int | None
    """The first offset of the commits in the log; None if it is not known."""
    next: int
    """The next offset that the table has recorded."""
    commits: int
    is_whole: bool
    """True if the log still has the commit with which the stream began."""
    breaks: tuple[str, ...]

    def summary(self) -> str:
        """Return a line for people."""
        place = f"{self.topic}/{self.partition}"
        span = f"offsets {'?' if self.first is None else self.first} to {self.next}"
        commits = f"in {format_count(self.commits, 'commit')}"
        if not self.breaks:
            return f"{place}: {span} {commits}, without gap or overlap"
        return "\n  ".join([f"{place}: {span} {commits}", *self.breaks])


class LostRange(msgspec.Struct, frozen=True):
    """Offsets without a row, which nothing explains."""

    topic: str
    partition: int
    start: int
    stop: int
    reason: str


class CheckedRows(msgspec.Struct, frozen=True):
    """What the rows of the table prove."""

    rows: int
    doubled: Strays
    outside: Strays
    """Rows of offsets that the table has not recorded."""
    dead_letters: int = 0
    """Offsets without a row whose event is a dead letter."""
    no_message: int = 0
    """Offsets without a row for which Kafka has no message."""
    skipped: int = 0
    """Offsets without a row whose event cannot be decoded, and was skipped."""
    deleted: int = 0
    """Offsets that Kafka had deleted before they were read, which the stream was told to skip."""
    lost: tuple[LostRange, ...] = ()
    is_complete: bool = True
    """True if it was checked that no row is missing."""

    @property
    def is_right(self) -> bool:
        return not (self.doubled.count or self.outside.count or self.lost)

    def lines(self) -> list[str]:
        """Return lines for people."""
        said = [f"{format_count(self.rows, 'row')} read"]
        said += _strays(self.doubled, "there more than once")
        said += _strays(self.outside, "not among those that the table has recorded")
        explained = (
            (self.dead_letters, "without a row: a dead letter"),
            (self.no_message, "without a row: Kafka has no message for it"),
            (self.skipped, "without a row: the event cannot be decoded, and was skipped"),
            (self.deleted, "without a row: Kafka had deleted the event before it was read"),
        )
        said += [f"{format_count(count, 'offset')} {text}" for count, text in explained if count]
        for each in self.lost[:_MAX_SHOWN]:
            count = format_count(each.stop - each.start, "offset")
            said.append(
                f"lost: {each.topic}/{each.partition} {each.start} to {each.stop - 1} ({count}): "
                f"{each.reason}"
            )
        if len(self.lost) > _MAX_SHOWN:
            said.append(f"... and {len(self.lost) - _MAX_SHOWN:,} more ranges (--json has all)")
        return said


_MAX_SHOWN = 20


class Verification(msgspec.Struct, frozen=True):
    """Whether a table has every event of its stream once."""

    stream: str
    table: str
    version: int
    is_proved: bool
    """True if nothing is wrong, as far as it could be checked; see ``notes``."""
    partitions: tuple[CheckedPartition, ...]
    rows: CheckedRows | None
    """None if the rows do not say which events they are."""
    notes: tuple[str, ...]
    """What could not be checked, and why."""

    def summary(self) -> str:
        """Return lines for people."""
        lines = [f"{self.table}, version {self.version}, stream {self.stream!r}"]
        lines += [each.summary() for each in self.partitions]
        lines += [] if self.rows is None else self.rows.lines()
        lines += [f"not checked: {note}" for note in self.notes]
        lines.append(self._verdict())
        return "\n".join(lines)

    def _verdict(self) -> str:
        if not self.is_proved:
            return "WRONG: the table does not have every event once; see above"
        if self.rows is None:
            return "the commits follow each other without gap or overlap"
        if not self.rows.is_complete:
            return "no event is there twice, and the commits follow each other"
        return "every event is there once"


def _strays(strays: Strays, what: str) -> list[str]:
    if not strays.count:
        return []
    examples = ", ".join(f"{topic}/{number} {at}" for topic, number, at in strays.examples)
    return [f"{format_count(strays.count, 'row')} of offsets {what}: {examples}"]
