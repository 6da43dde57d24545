"""The offsets of a stream that a commit moves on, by compare and swap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class StreamOffsets(msgspec.Struct, frozen=True):
    """The next offsets of a stream before and after a commit.

    Both are by source partition, ``<cluster>/<topic id>/<partition>``. A partition that the table
    does not know yet is not in ``before``.
    """

    stream: str
    """The name of the stream."""
    before: Mapping[str, int]
    """The next offsets that the table must have recorded."""
    after: Mapping[str, int]
    """The next offsets that it has recorded once the commit is made."""
    notes: Mapping[str, Any] = {}
    """Further facts of the batch, which its log entry gets as JSON."""
