"""How long is waited for servers: a value that travels with whoever calls them."""

from __future__ import annotations

import msgspec


class Timeouts(msgspec.Struct, frozen=True):
    """Of one job's, or one program's, calls. All in seconds."""

    call_s: float = 30.0
    """Of a call that is answered from memory."""
    stream_s: float = 3600.0
    """Of one DoPut or DoGet, from its first to its last byte."""
    silence_s: float = 60.0
    """Until the next message of a stream that is read, or its first."""
    reconnect_s: float = 30.0
    """For a metadata server that cannot be reached, or where there is no data server left: others
    may be starting in their place."""


DEFAULT_TIMEOUTS = Timeouts()

AT_ONCE = Timeouts(call_s=2.0, reconnect_s=0.0)
"""For who has waited already, or cannot wait."""
