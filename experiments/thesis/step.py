"""A step of a prototype (map, shuffle, reduce): tasks that are independent of each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WEIGHTS = {"User": 2, "Robot": 1}
"""The weight of a visit (section 3.1)."""


@dataclass(frozen=True)
class Step:
    """A step. ``task`` is called with each of ``arguments``, in one process or in several."""

    name: str
    task: Callable[..., None]
    arguments: list[tuple[Any, ...]]


@dataclass(frozen=True)
class Folders:
    """The folders for the files of the steps of one run."""

    work: Path

    @property
    def mapped(self) -> Path:
        """The output of the mappers."""
        return self._made("mapped")

    @property
    def shuffled(self) -> Path:
        """The output of the shufflers."""
        return self._made("shuffled")

    @property
    def reduced(self) -> Path:
        """The output of the reducers: ``0000.csv`` and on, with the columns url and clicks."""
        return self._made("reduced")

    def _made(self, name: str) -> Path:
        folder = self.work / name
        folder.mkdir(exist_ok=True)
        return folder
