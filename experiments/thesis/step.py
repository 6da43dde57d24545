"""A step of a prototype (map, shuffle, reduce): tasks that need nothing of each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WEIGHTS = {"User": 2, "Robot": 1}
"""What a visit counts (section 3.1)."""


@dataclass(frozen=True)
class Step:
    """``task`` is called with each of ``arguments``, in one process or in many."""

    name: str
    task: Callable[..., None]
    arguments: list[tuple[Any, ...]]


@dataclass(frozen=True)
class Folders:
    """Where the steps of one run leave their files."""

    work: Path

    @property
    def mapped(self) -> Path:
        """Output of the mappers."""
        return self._made("mapped")

    @property
    def shuffled(self) -> Path:
        """Output of the shufflers."""
        return self._made("shuffled")

    @property
    def reduced(self) -> Path:
        """Output of the reducers: ``0000.csv`` and on, with the columns url and clicks."""
        return self._made("reduced")

    def _made(self, name: str) -> Path:
        folder = self.work / name
        folder.mkdir(exist_ok=True)
        return folder
