"""The first messages of an input, from which its columns and types are inferred."""

from __future__ import annotations

from collections.abc import Sequence

from mrflight.sources.kafka.client_settings import ClientSettings
from mrflight.sources.kafka.messages import Messages
from mrflight.sources.kafka.offset_range import OffsetRange
from mrflight.sources.kafka.range_reader import read_range

_MESSAGES, _MAX_PARTITIONS = 500, 16
"""The messages that are looked at of each partition, and the partitions, evenly spread."""

_MAX_BYTES = 4 << 20
DEFAULT_MESSAGE_BYTES = 256
"""What a message is taken for before any was seen."""


def sample_messages(settings: ClientSettings, ranges: Sequence[OffsetRange]) -> list[Messages]:
    """Return the first messages of some ranges, for each that has any."""
    filled = [each for each in ranges if each.count > 0]
    step = max(1, -(-len(filled) // _MAX_PARTITIONS))
    found = []
    for each in filled[::step]:
        messages = _first(settings, each)
        if messages is not None:
            found.append(messages)
    return found


def _first(settings: ClientSettings, range: OffsetRange) -> Messages | None:
    """Return the first messages of a range; None if it has none."""
    for messages in read_range(settings, range, with_headers=False):
        count = min(len(messages), _MESSAGES, max(1, _MAX_BYTES // mean_bytes([messages])))
        return messages.slice(0, count)
    return None


def mean_bytes(sample: Sequence[Messages]) -> int:
    """Return the mean size of messages."""
    count = sum(map(len, sample))
    total = sum(messages.size_bytes for messages in sample)
    return max(1, total // count) if count else DEFAULT_MESSAGE_BYTES
