"""Recognises a RESTORE in the log of a Delta table.

It is a version that has the rows of an earlier one again. The versions in between are undone, but
their application transactions stay recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

__all__ = ["Restore", "find_restore"]


class Restore(msgspec.Struct, frozen=True):
    """A version that restored an earlier one."""

    target: int | None
    """The version whose rows it has; None if the log only tells a time, or nothing."""


def find_restore(version: int, actions: Sequence[Mapping[str, Any]]) -> Restore | None:
    """Return what the entry of a version restored; None if it is no RESTORE."""
    for action in actions:
        info = action.get("commitInfo") or {}
        if info.get("operation") == "RESTORE":
            return Restore(_target(version, info))
    return None


def _target(version: int, info: Mapping[str, Any]) -> int | None:
    """Return the restored version, which Spark writes as a number and deltalake as a text."""
    try:
        target = int(info["operationParameters"]["version"])
    except (KeyError, TypeError, ValueError):
        return None
    return target if 0 <= target < version else None
