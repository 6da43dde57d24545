"""Parses and formats sizes and times."""

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
_MAX_BYTES = 2**63 - 1
"""Sizes of files and buffers are signed 64-bit numbers."""

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
_MAX_SECONDS = 36500 * _DAY
"""A third of the longest timeout of a lock, `threading.TIMEOUT_MAX`."""

_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


def parse_bytes(text: str) -> int:
    """Return the bytes of a size such as ``"512 MiB"`` or ``"2GB"``, which must be below 8 EiB.

    Raises ValueError.
    """
    size = _parse(text, _SIZE_UNITS, "a size", "512 MiB")
    if size > _MAX_BYTES:
        raise ValueError(f"{text[:40]!r} is too large; a size must be below 8 EiB")
    return round(size)


def parse_seconds(text: str) -> float:
    """Return the seconds of a time such as ``"10 min"`` or ``"500ms"``, of at most 100 years.

    Raises ValueError.
    """
    seconds = _parse(text, {**_TIME_UNITS, "": 1}, "a time", "10 min")
    if seconds > _MAX_SECONDS:
        raise ValueError(f"{text[:40]!r} is too long; a time must be at most 36,500 days")
    return seconds


def format_bytes(size: float) -> str:
    """Format a size for people: ``1.5 GiB``."""
    if size < 1024:
        return f"{size:.0f} B"
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} EiB"


def format_rate(per_second: float, noun: str) -> str:
    """Format a rate for people: ``950 rows/s``, ``312k rows/s``, ``1.5M rows/s``."""
    if per_second < 1000:
        return f"{per_second:.0f} {noun}/s"
    for unit in ("k", "M"):
        per_second /= 1000
        if per_second < 1000:
            return f"{per_second:.{1 if per_second < 10 else 0}f}{unit} {noun}/s"
    return f"{per_second / 1000:.1f}G {noun}/s"


def format_duration(seconds: float) -> str:
    """Format a time for people, in two units at most: ``12 s``, ``3 min 20 s``, ``1 h 5 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60} min"


def format_count(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural if need be: ``1 file``, ``2 files``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _parse(text: str, units: dict[str, float] | dict[str, int], what: str, example: str) -> float:
    match = _QUANTITY.fullmatch(text)
    unit = match[2].lower() if match else ""
    unit = unit if unit in units or unit == "s" else unit.removesuffix("s")
    if match is None or unit not in units:
        raise ValueError(f"{text[:40]!r} is not {what} such as {example!r}")
    return float(match[1]) * units[unit]
