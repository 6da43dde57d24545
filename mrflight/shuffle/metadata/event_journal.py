"""A metadata server's journal: every event, until nothing that is left depends on it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from mrflight.errors import JournalError
from mrflight.shuffle.metadata.compacted import compacted
from mrflight.shuffle.metadata.events import AnyEvent, decode_event, encode_event
from mrflight.shuffle.metadata.journal import Journal
from mrflight.system.closeable import Closeable

log = logging.getLogger(__name__)

COMPACT_BYTES = 16 * 2**20
"""A journal below this is read again in well under a second, so it may keep what is over."""
_GROWTH = 4
"""Times its size after the last compaction: so that less is rewritten than appended, about."""


class EventJournal(Closeable):
    """Events on a disk, in order, to be given to `Registry.resume`. Safe for many threads.

    Opened as a `Journal` is, and raises what it raises. It is written anew, without what has
    come to nothing, when it is above ``compact_bytes`` and has grown fourfold since the last time:
    by a thread of its own, as data servers that are not answered for 10 s are given up. To go
    through 1.6 GB (200 shuffles, 1,000 commits each of 1,000 partitions) took 7 to 18 s when
    nothing was summed up, and no record waited for more than 0.2 s meanwhile.
    """

    def __init__(self, path: Path, compact_bytes: int = COMPACT_BYTES) -> None:
        self._journal = Journal(path)
        self._compact_bytes = compact_bytes
        self._compact_at = compact_bytes
        self._is_wanted = SimpleQueue[bool]()
        self._compaction = threading.Thread(
            target=self._keep_compact, name="compaction", daemon=True
        )
        self._compaction.start()

    def events(self) -> Iterator[AnyEvent]:
        """What was recorded, in order; to be read before anything more is.

        JournalError where a record is no event, or not readable.
        """
        for record in self._journal.records():
            try:
                yield decode_event(record)
            except JournalError as error:
                raise JournalError(f"{self._journal.path}: {error}") from error

    def record(self, event: AnyEvent) -> None:
        """Keep an event; it is durable when this returns. JournalError where it cannot be kept."""
        self._journal.append(encode_event(event))
        if self._journal.size_bytes > self._compact_at:
            self._is_wanted.put(True)

    def close(self) -> None:
        """Let go of the file, once a compaction is over; nothing can be recorded any more."""
        self._is_wanted.put(False)
        self._compaction.join()
        self._journal.close()

    def _keep_compact(self) -> None:
        while self._is_wanted.get():
            if self._journal.size_bytes > self._compact_at:
                self._compact()

    def _compact(self) -> None:
        before = self._journal.size_bytes
        try:
            self._journal.rewrite(compacted(partial(self._journal.records, until=before)), before)
        except JournalError as error:  # all events are kept
            log.warning("the journal keeps what is over, until it has grown again: %s", error)
            self._compact_at = self._journal.size_bytes + self._compact_bytes
        else:
            log.info("the journal had %d bytes and has %d now", before, self._journal.size_bytes)
            self._compact_at = max(self._compact_bytes, _GROWTH * self._journal.size_bytes)
