"""Sizes and times as people write them, parsed once at the edge."""

from __future__ import annotations

import re

_SIZE_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "pb": 10**15,
    "eb": 10**18,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
    "pib": 2**50,
    "eib": 2**60,
}
_MOST_BYTES = 2**63 - 1
"""As files and buffers are counted, in signed numbers of 64 bits."""

_DAY = 86400
_TIME_UNITS = {
    "ms": 0.001,
    "s": 1,
    "sec": 1,
    "min": 60,
    "h": 3600,
    "hour": 3600,
    "d": _DAY,
    "day": _DAY,
}
_MOST_SECONDS = 36500 * _DAY
"""A third of the longest that a lock can be waited for, `threading.TIMEOUT_MAX`."""

_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


def parse_bytes(text: str) -> int:
    """Bytes in a size such as ``"512 MiB"`` or ``"2GB"``; ValueError if it is none, or 8 EiB."""
    size = _parse(text, _SIZE_UNITS, "a size", "512 MiB")
    if size > _MOST_BYTES:
        raise ValueError(f"{text[:40]!r} is too large a size: it has to be below 8 EiB")
    return round(size)


def parse_seconds(text: str) -> float:
    """Seconds in a time such as ``"10 min"`` or ``"500ms"``; ValueError if it is none.

    Or if it is longer than 100 years.
    """
    seconds = _parse(text, {**_TIME_UNITS, "": 1}, "a time", "10 min")
    if seconds > _MOST_SECONDS:
        raise ValueError(f"{text[:40]!r} is too long a time: it is at most 36,500 days")
    return seconds


def format_bytes(size: float) -> str:
    """A size for people to read: ``1.5 GiB``."""
    if size < 1024:
        return f"{size:.0f} B"
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} EiB"


def _parse(text: str, units: dict[str, float] | dict[str, int], what: str, example: str) -> float:
    match = _QUANTITY.fullmatch(text)
    unit = match[2].lower() if match else ""
    unit = unit if unit in units or unit == "s" else unit.removesuffix("s")
    if match is None or unit not in units:
        raise ValueError(f"{text[:40]!r} is not {what} such as {example!r}")
    return float(match[1]) * units[unit]
