"""The one switch for debugging: ``MRFLIGHT_DEBUG=1`` in the environment."""

from __future__ import annotations

import os


def is_debugging() -> bool:
    """Return whether errors shall show where in mrflight they were raised, and why."""
    return os.environ.get("MRFLIGHT_DEBUG", "") not in ("", "0")
