"""Asks Kafka why a table has no row for some offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from mrflight.errors import MrflightError
from mrflight.sources.kafka.offset_range import OffsetRange
from mrflight.sources.kafka.range_reader import read_range
from mrflight.sources.kafka.topic_offsets import Partition, PartitionOffsets
from mrflight.streams.event_decoder import EventDecoder
from mrflight.streams.offset_presence import Ranges
from mrflight.streams.stream_job import StreamJob
from mrflight.streams.verification import LostRange

_READ_ACROSS = 10_000
"""Missing offsets with fewer others between them are read together."""

_TIMEOUT_S = 20.0

Spans = list[tuple[int, int]]


class Explained(msgspec.Struct, frozen=True):
    """Why offsets have no row."""

    no_message: int = 0
    skipped: int = 0
    lost: tuple[LostRange, ...] = ()


class MissingOffsets:
    """Explains missing offsets by the messages that Kafka still has."""

    def __init__(self, job: StreamJob) -> None:
        self._job = job
        self._kept: dict[Partition, PartitionOffsets] = {}
        self._decoder: EventDecoder | None = None

    def explain(self, missing: Ranges) -> Explained:
        """Return why each of these offsets has no row."""
        no_message = skipped = 0
        lost: list[LostRange] = []
        for place, spans in missing.items():
            try:
                for group in _groups(spans):
                    found = self._explain(place, group)
                    no_message += found.no_message
                    skipped += found.skipped
                    lost += found.lost
            except MrflightError as error:
                reason = f"Kafka cannot be asked: {error}"
                lost += [LostRange(*place, *span, reason) for span in spans]
        return Explained(no_message, skipped, tuple(lost))

    def _explain(self, place: Partition, spans: Spans) -> Explained:
        earliest, latest = self._offsets(place).earliest, self._offsets(place).latest
        lost = [
            LostRange(
                *place,
                start,
                min(stop, earliest),
                "Kafka has deleted these offsets, so that it is not known what was there",
            )
            for start, stop in spans
            if start < earliest
        ]
        lost += [
            LostRange(*place, max(start, latest), stop, f"the topic ends at offset {latest}")
            for start, stop in spans
            if stop > latest
        ]
        there = [
            (max(start, earliest), min(stop, latest))
            for start, stop in spans
            if stop > earliest and start < latest
        ]
        if not there:
            return Explained(lost=tuple(lost))
        offsets, skipped = self._messages(place, there)
        lost += [
            LostRange(*place, start, stop, "Kafka has these events, and the table has not")
            for start, stop in _as_spans(offsets)
        ]
        wanted = sum(stop - start for start, stop in there)
        return Explained(wanted - len(offsets) - skipped, skipped, tuple(lost))

    def _messages(self, place: Partition, spans: Spans) -> tuple[list[int], int]:
        """Return which of the offsets have a message, without bad events that are skipped.

        The second number is how many of those there are.
        """
        skips = self._job.settings.on_bad_row == "skip"
        found: list[int] = []
        skipped = 0
        whole = OffsetRange(*place, spans[0][0], spans[-1][1])
        for messages in read_range(
            self._job.client, whole, with_headers=False, timeout_s=_TIMEOUT_S
        ):
            offsets = messages.offsets.to_numpy()
            chosen = np.zeros(len(offsets), bool)
            for start, stop in spans:
                low, high = np.searchsorted(offsets, [start, stop])
                chosen[low:high] = True
            if not chosen.any():
                continue
            bad: set[int] = set()
            if skips:
                missing = messages.take(np.flatnonzero(chosen))
                bad = {each.offset for each in self._events().decode(missing).rejected}
            skipped += len(bad)
            found += [int(each) for each in offsets[chosen] if int(each) not in bad]
        return found, skipped

    def _events(self) -> EventDecoder:
        if self._decoder is None:
            self._decoder = EventDecoder.of(self._job)
        return self._decoder

    def _offsets(self, place: Partition) -> PartitionOffsets:
        if place not in self._kept:
            self._kept |= self._job.cluster().offsets([place])
        return self._kept[place]


def _groups(spans: Spans) -> Iterator[Spans]:
    """Yield neighbouring spans, which are read together."""
    group: Spans = []
    for span in spans:
        if group and span[0] - group[-1][1] > _READ_ACROSS:
            yield group
            group = []
        group.append(span)
    if group:
        yield group


def _as_spans(offsets: Sequence[int]) -> Spans:
    spans: Spans = []
    for each in offsets:
        if spans and spans[-1][1] == each:
            spans[-1] = (spans[-1][0], each + 1)
        else:
            spans.append((each, each + 1))
    return spans
