"""Messages of one partition, as Arrow arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from mrflight.sources.kafka.offset_range import partition_path

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

METADATA = pa.schema(
    [
        ("_topic", pa.string()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_timestamp", pa.timestamp("us", "UTC")),
        ("_key", pa.binary()),
        ("_headers", HEADERS),
    ]
)
"""The columns of ``metadata = true``."""


@dataclass(frozen=True)
class Messages:
    """Messages in the order of their offsets. Values and keys may be null."""

    topic: str
    partition: int
    offsets: pa.Int64Array
    timestamps: pa.Int64Array
    """Milliseconds since 1970, or -1 for a message without a time."""
    keys: pa.BinaryArray
    values: pa.BinaryArray
    headers: pa.ListArray | None = None
    """None if they were not asked for."""

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def place(self) -> str:
        """The name of the partition in messages."""
        return partition_path(self.topic, self.partition)

    @property
    def size_bytes(self) -> int:
        """The bytes of the values and keys."""
        return int(self.values.nbytes + self.keys.nbytes)

    def slice(self, start: int, length: int) -> Messages:
        """Return some consecutive messages, without a copy."""
        return replace(
            self,
            offsets=self.offsets.slice(start, length),
            timestamps=self.timestamps.slice(start, length),
            keys=self.keys.slice(start, length),
            values=self.values.slice(start, length),
            headers=None if self.headers is None else self.headers.slice(start, length),
        )

    def take(self, indexes: pa.Array) -> Messages:
        """Return the messages at these places."""
        return replace(
            self,
            offsets=self.offsets.take(indexes),
            timestamps=self.timestamps.take(indexes),
            keys=self.keys.take(indexes),
            values=self.values.take(indexes),
            headers=None if self.headers is None else self.headers.take(indexes),
        )

    def below(self, stop: int) -> Messages:
        """Return the messages whose offsets are less than ``stop``."""
        count = int(np.searchsorted(self.offsets.to_numpy(), stop))
        return self if count == len(self) else self.slice(0, count)

    def metadata(self, columns: list[str]) -> list[pa.Array]:
        """Return some columns of `METADATA`."""
        return [self._metadata(name) for name in columns]

    def _metadata(self, name: str) -> pa.Array:
        rows = len(self)
        match name:
            case "_topic":
                return pa.repeat(pa.scalar(self.topic, pa.string()), rows)
            case "_partition":
                return pa.repeat(pa.scalar(self.partition, pa.int32()), rows)
            case "_offset":
                return self.offsets
            case "_key":
                return self.keys
            case "_headers":
                return pa.nulls(rows, HEADERS) if self.headers is None else self.headers
        millis = self.timestamps.to_numpy()
        times = pa.array(millis * 1000, pa.int64(), mask=millis < 0)
        return times.view(METADATA.field(name).type)


def value_bytes(
    values: pa.BinaryArray,
) -> tuple[pa.Buffer, np.ndarray[tuple[int], np.dtype[np.int32]]]:
    """Return the bytes of values, which must not be null, one after the other, and their offsets.

    There is one offset more than there are values, and the first is 0.
    """
    _, offsets, data = values.buffers()
    bounds = np.frombuffer(offsets, np.int32, len(values) + 1, values.offset * 4)
    start, stop = int(bounds[0]), int(bounds[-1])
    buffer = pa.py_buffer(b"") if data is None else data.slice(start, stop - start)
    return buffer, bounds - bounds[0]
