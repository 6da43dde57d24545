"""The event that tells what the maps of a stage wrote to each partition."""

from __future__ import annotations

from collections.abc import Sequence

from mrflight.events.kinds import PartitionsWritten

MAX_PARTITIONS = 10_000
"""Of more partitions, neighbours are added up."""


def partitions_written(
    stage: int, shuffle: str, rows: Sequence[int], size_bytes: Sequence[int]
) -> PartitionsWritten:
    """Return the event for the rows and bytes of each partition."""
    width = max(1, -(-len(rows) // MAX_PARTITIONS))
    filled = sorted(size for size, count in zip(size_bytes, rows, strict=True) if count)
    largest = max(range(len(size_bytes)), key=size_bytes.__getitem__, default=0)
    return PartitionsWritten(
        stage=stage,
        shuffle=shuffle,
        rows=_summed(rows, width),
        size_bytes=_summed(size_bytes, width),
        width=width,
        largest=(largest, size_bytes[largest] if size_bytes else 0),
        median_bytes=filled[len(filled) // 2] if filled else 0,
    )


def _summed(numbers: Sequence[int], width: int) -> list[int]:
    if width == 1:
        return list(numbers)
    return [sum(numbers[start : start + width]) for start in range(0, len(numbers), width)]
