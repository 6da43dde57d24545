"""Dead letters that can be decoded now, and those that still cannot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from mrflight.sources.kafka.messages import Messages
from mrflight.sources.kafka.topic_offsets import Partition
from mrflight.streams.event_decoder import EventDecoder
from mrflight.streams.offset_presence import Ranges, by_partition
from mrflight.streams.stream_job import StreamJob
from mrflight.streams.table_offsets import PLACE, TableOffsets

_MAX_REASONS = 10


class ReplayedEvents:
    """The dead letters of one replay, at most so many of those that can be decoded."""

    def __init__(self, max_events: int) -> None:
        self._max_events = max_events
        self._decoder: EventDecoder | None = None
        self._good: list[Messages] = []
        self._present: dict[Partition, set[int]] = {}
        self.count = 0
        """The events that can be decoded."""
        self.failed = 0
        self.not_passed = 0
        """The events of batches that the stream has not committed, and will read again."""
        self.reasons: Counter[str] = Counter()

    @property
    def rows(self) -> int:
        """The events that can be decoded, and that the table does not have."""
        return self.count - sum(map(len, self._present.values()))

    def decode(
        self, decoder: EventDecoder, found: Iterable[Messages], passed: Mapping[Partition, int]
    ) -> None:
        """Decode events until there are enough. ``passed`` are the next offsets of the stream."""
        self._decoder = decoder
        for messages in found:
            kept = messages.below(passed.get((messages.topic, messages.partition), 0))
            self.not_passed += len(messages) - len(kept)
            good = self._decodable(decoder, kept)
            good = good.slice(0, self._max_events - self.count)
            if len(good):
                self._good.append(good)
                self.count += len(good)
            if self.count >= self._max_events:
                return

    def _decodable(self, decoder: EventDecoder, messages: Messages) -> Messages:
        if not len(messages):
            return messages
        rejected = decoder.decode(messages).rejected
        self.failed += len(rejected)
        for each in rejected:
            if each.reason in self.reasons or len(self.reasons) < _MAX_REASONS:
                self.reasons[each.reason] += 1
        return _without(messages, {each.offset for each in rejected})

    def remove_present(self, job: StreamJob) -> int:
        """Leave out the rows of events that the table has, and return how many these are.

        That happens if the job was corrected after a batch had committed its dead letters and not
        yet its rows. It can be seen only if the rows say which events they are.
        """
        table = job.open_table()
        if table is None or any(name not in table.schema.names for name in PLACE):
            return 0
        wanted = self._offsets()
        offsets = TableOffsets(table, job.folder, job.spec.storage)
        for batch in offsets.read():
            for place, found in by_partition(batch).items():
                if place in wanted:
                    there = np.intersect1d(found, wanted[place])
                    self._present.setdefault(place, set()).update(there.tolist())
        return self.count - self.rows

    def table(self) -> pa.Table:
        """Return the rows of the events."""
        assert self._decoder is not None, "events were decoded"
        batches = []
        for messages in self._good:
            there = self._present.get((messages.topic, messages.partition), set())
            kept = _without(messages, there)
            if len(kept):
                batches.append(self._decoder.decode(kept).rows)
        return pa.Table.from_batches(batches, self._decoder.schema)

    def ranges(self) -> Ranges:
        """Return the offsets of all events that can be decoded, also of those that are present."""
        return {place: _as_ranges(offsets) for place, offsets in self._offsets().items()}

    def _offsets(self) -> dict[Partition, np.ndarray[tuple[int], np.dtype[np.int64]]]:
        found: dict[Partition, list[np.ndarray[tuple[int], np.dtype[np.int64]]]] = {}
        for messages in self._good:
            place = messages.topic, messages.partition
            found.setdefault(place, []).append(messages.offsets.to_numpy())
        return {place: np.unique(np.concatenate(each)) for place, each in found.items()}


def _without(messages: Messages, offsets: set[int]) -> Messages:
    if not offsets:
        return messages
    is_left_out = np.isin(messages.offsets.to_numpy(), list(offsets))
    return messages.take(pa.array(np.flatnonzero(~is_left_out)))


def _as_ranges(offsets: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[tuple[int, int]]:
    """Return runs of sorted offsets."""
    starts = np.flatnonzero(np.diff(offsets, prepend=offsets[:1] - 2) != 1)
    stops = [*starts[1:], len(offsets)]
    return [
        (int(offsets[start]), int(offsets[stop - 1]) + 1)
        for start, stop in zip(starts, stops, strict=True)
    ]
