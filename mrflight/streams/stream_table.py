"""One version of the table of a stream, as the commands that look at it need it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import pyarrow as pa

from mrflight.config.input_spec import InputSpec
from mrflight.sinks.commit.stream_offsets import RecordedBatch
from mrflight.sources.recorded_names import of_partitions
from mrflight.streams.recorded_stream import (
    RecordedStream,
    StreamCommit,
    parse_name,
    to_commit,
)


class StreamTable(ABC):
    """A table in the version that was the newest when it was opened."""

    def __init__(self, url: str, version: int) -> None:
        self.url = url
        """The table, for messages."""
        self.version = version
        """The version, or the snapshot."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of the table."""

    @abstractmethod
    def offsets(self, stream: str) -> dict[str, int]:
        """Return the next offsets that are recorded, by the names that partitions have in tables.

        Raises CommitError if the history cannot be read, or if the table was rolled back.
        """

    @abstractmethod
    def batches(self, stream: str) -> Iterator[RecordedBatch | None]:
        """Yield the commits of a stream, the newest first; None at the end if older ones are gone.

        Raises CommitError if the history cannot be read.
        """

    @abstractmethod
    def input_spec(self, columns: list[str]) -> InputSpec:
        """Return the input that reads columns of this version."""

    def recorded(self, stream: str) -> RecordedStream:
        """Return what is recorded of a stream; raises as `offsets` does."""
        found = of_partitions(self.offsets(stream))
        return RecordedStream(
            self.url, self.version, tuple(sorted(parse_name(*each) for each in found.items()))
        )

    def commits(self, stream: str) -> Iterator[StreamCommit | None]:
        """Yield the commits of a stream as `batches` does."""
        for batch in self.batches(stream):
            yield None if batch is None else to_commit(batch)
