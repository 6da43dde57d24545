"""The names of callers, and of the hosts of servers, as certificates have them."""

from __future__ import annotations

import re

from mrflight.errors import JobFileError

_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_HOST = re.compile(rf"(\*\.)?{_LABEL}(\.{_LABEL})*")
_MAX_NAME = 253
"""RFC 1035, without the dot at the end."""


def check_name(name: str) -> None:
    """Raise JobFileError unless a certificate can say that a caller has this name."""
    if len(name) > _MAX_NAME or _NAME.fullmatch(name) is None:
        raise JobFileError(
            f"{name[:_MAX_NAME]!r} cannot be the name of a caller; use letters, digits, '-' and "
            "'_', with dots in between, such as data-1.example.com"
        )


def check_host_name(host: str) -> None:
    """Raise JobFileError unless this is a host name; its first part may be ``*``."""
    if len(host) > _MAX_NAME or _HOST.fullmatch(host) is None:
        raise JobFileError(f"{host[:_MAX_NAME]!r} is neither a host name nor an IP address")
