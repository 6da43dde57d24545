"""What journals hold once they are opened again, or compacted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from mrflight.shuffle.metadata.compacted import compacted
from mrflight.shuffle.metadata.event_journal import COMPACT_BYTES, EventJournal
from mrflight.shuffle.metadata.events import AnyEvent, decode_event, encode_counts, encode_event
from mrflight.shuffle.metadata.journal import Journal


def records_in(path: Path) -> list[bytes]:
    with Journal(path) as journal:
        return list(journal.records())


def check_order(records: list[bytes], expected: dict[int, int]) -> None:
    """Of each thread there is every record once, in order."""
    found: dict[int, list[int]] = {thread: [] for thread in expected}
    for record in records:
        thread, number = map(int, record.split()[:2])
        found[thread].append(number)
    assert found == {thread: list(range(count)) for thread, count in expected.items()}


def counted(counts: Sequence[int]) -> bytes:
    """Counts as an event has them."""
    return encode_counts(np.array(counts, np.int64))


def recorded(path: Path, events: Iterable[AnyEvent], compact_bytes: int = COMPACT_BYTES) -> int:
    """The size of a journal, once these are recorded in it and compactions are over."""
    with EventJournal(path, compact_bytes) as journal:
        for event in events:
            journal.record(event)
    return path.stat().st_size


def recorded_in(path: Path) -> list[AnyEvent]:
    with EventJournal(path) as journal:
        return list(journal.events())


def kept(events: list[AnyEvent]) -> list[AnyEvent]:
    """Those that a compaction leaves."""
    return list(map(decode_event, compacted(lambda: map(encode_event, events))))
