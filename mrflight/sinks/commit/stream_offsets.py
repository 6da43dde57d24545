"""The offsets of a stream that a commit records in its table, by compare-and-swap."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class StreamOffsets(msgspec.Struct, frozen=True):
    """The offsets of one stream, before and after a commit.

    The commit is made only if the table, on the snapshot that the commit is conditional on, has
    recorded ``before`` for every partition of ``after``.
    """

    stream: str
    """The name of the stream."""
    before: Mapping[str, int]
    """The next offset by source partition, ``<cluster>/<topic id>/<partition>``, which the table
    must have recorded. A partition that it does not know is absent."""
    after: Mapping[str, int]
    """The offsets that the table has recorded once the commit is made."""
