"""Sizes and times as people write them, parsed once at the edge."""

from __future__ import annotations

import math
import re

_SIZE_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
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
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


def parse_bytes(text: str) -> int:
    """Bytes in a size such as ``"512 MiB"`` or ``"2GB"``; ValueError if it is none."""
    return round(_parse(text, _SIZE_UNITS, "a size", "512 MiB"))


def parse_seconds(text: str) -> float:
    """Seconds in a time such as ``"10 min"`` or ``"500ms"``; ValueError if it is none."""
    return _parse(text, {**_TIME_UNITS, "": 1}, "a time", "10 min")


def format_bytes(size: float) -> str:
    """A size for people to read: ``1.5 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _parse(text: str, units: dict[str, float] | dict[str, int], what: str, example: str) -> float:
    match = _QUANTITY.fullmatch(text)
    unit = match[2].lower() if match else ""
    unit = unit if unit in units or unit == "s" else unit.removesuffix("s")
    value = float(match[1]) if match else math.inf
    if unit not in units or math.isinf(value * units[unit]):
        raise ValueError(f"{text[:40]!r} is not {what} such as {example!r}")
    return value * units[unit]
