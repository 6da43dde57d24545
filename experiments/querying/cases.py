"""What several engines do in turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Way = Callable[[Path], list[str]]
"""Returns the command line of a run, whose files are in an empty folder."""

Check = Callable[[Path, str], dict[str, Any]]
"""Returns further figures of a run from its folder and its stdout.

Raises WrongResultError if the result is wrong.
"""


@dataclass(frozen=True)
class Case:
    name: str
    """The name in the JSON and in messages."""
    ways: Mapping[str, Way]
    """By the name of the engine."""
    check: Check
    repeats: int = 1
    """How often a round has the case: a short one is repeated."""
