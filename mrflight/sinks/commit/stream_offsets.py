"""The offsets of a stream that a commit moves on, together with the rows that it adds."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class StreamOffsets(msgspec.Struct, frozen=True):
    """The offsets of a batch of a stream, by source partition: cluster, topic id and partition."""

    stream: str
    """The name of the stream."""
    before: Mapping[str, int]
    """The next offset of each partition, which the table must have recorded; a partition that it
    does not know is absent."""
    after: Mapping[str, int]
    """What the table has recorded once this is committed."""
