"""``[stream]``: how the events of a stream become commits of a table."""

from __future__ import annotations

from typing import Literal

import msgspec


class StreamSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[stream]``: the identity of a stream, its batches, and what is done with bad rows."""

    name: str | None = None
    """The name under which the table records the offsets; by default that of the job."""
    commit: str = "10 s"
    """How long events wait for a commit, unless ``max_rows`` or ``max_bytes`` come first."""
    max_rows: int = 1_000_000
    """The most events of a batch."""
    max_bytes: str = "128 MiB"
    """About how many bytes of events a batch has at most, as Kafka stores them."""
    mode: Literal["continuous", "available"] = "continuous"
    """``available``: up to the ends that the partitions have at the start, and no further."""
    on_bad_row: Literal["stop", "skip", "dead_letter"] = "stop"
    """What is done with an event that cannot be decoded."""
    dead_letter: str | None = None
    """The Delta table that gets the events that cannot be decoded."""
    max_bad: str = "1 %"
    """The share of a batch that may be bad before the stream stops."""
    on_lost_offsets: Literal["stop", "earliest"] = "stop"
    """What is done if Kafka has deleted events that were not read yet."""
    stop_within: str = "30 s"
    """How long a stream that is told to stop may take for its last commit."""
    upkeep: Literal["auto", "off"] = "auto"
    """``auto``: small files are compacted and old ones removed between commits."""
    live: bool = False
    """True if events can be read before they are committed: see ``inputs.NAME.fresh``."""
