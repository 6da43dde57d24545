"""The part of a topic, or of an event log, that one batch of a stream reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


class StreamBatch:
    """The ranges of offsets of a batch. Only a stream has it: a job file cannot write it."""

    def __init__(
        self,
        ranges: Mapping[tuple[str, int], tuple[int, int]],
        schema: pa.Schema | None,
        splits: int,
        memory_bytes: int,
    ) -> None:
        self.ranges = ranges
        """The first offset, and the one after the last, of each partition of a topic; an event log
        has the partition 0."""
        self.schema = schema
        """The schema of the events, if an earlier batch has found it out."""
        self.splits = splits
        """The most tasks that read it side by side."""
        self.memory_bytes = memory_bytes
        """What a task may hold of events that it has fetched."""
