"""What a store's client says of a failure, as one line of a message of ours."""

from __future__ import annotations

import re

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_CHAIN = re.compile(r"\s*↳\s*")


def reason(error: Exception) -> str:
    """Without colours, line ends and the debug form of the same."""
    text = _COLOURS.sub("", str(error)).partition("Debug source")[0]
    return " ".join(_CHAIN.sub(": ", text).split())
