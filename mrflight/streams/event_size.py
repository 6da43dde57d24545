"""How large the events of a stream are, as far as the batches until now tell."""

from __future__ import annotations

from collections.abc import Sequence

from mrflight.sources.kafka.offset_range import OffsetRange

FIRST_EVENT_BYTES = 200.0
_WEIGHT = 0.3
"""The weight of the last batch against those before it."""


class EventSize:
    """The mean size of an event, by which batches of so many bytes are cut."""

    def __init__(self) -> None:
        self.bytes = FIRST_EVENT_BYTES

    def seen(self, ranges: Sequence[OffsetRange], size_bytes: int) -> None:
        """Note the bytes of the events of some ranges."""
        count = sum(each.count for each in ranges)
        if count and size_bytes:
            self.bytes += _WEIGHT * (size_bytes / count - self.bytes)
