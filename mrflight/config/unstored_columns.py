"""The columns of a merge that its table does not get."""

from __future__ import annotations

from collections.abc import Sequence


class UnstoredColumns:
    """Columns that only say what becomes of a row. A job file cannot write it."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnstoredColumns) and self.names == other.names

    def __hash__(self) -> int:
        return hash(self.names)
