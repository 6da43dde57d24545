"""How rows go between a client and the data servers."""

from __future__ import annotations

from typing import Literal

Transport = Literal["auto", "shared", "flight"]
"""``auto`` passes rows in shared memory to and from data servers of the same machine, and over
Flight to and from others. ``flight`` never uses shared memory, and with ``shared`` it is an error
if there is none: see `mrflight.shuffle.wire.transport`."""
