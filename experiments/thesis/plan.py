"""Which runs the thesis's tables and figures need.

Numbers of files stand for the thesis's 5, 10, 20: its tables are of the
middle one, table 4.2 is of the smallest, figure 4.6 is of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from experiments.datasets import DataSet

KEYS = ("10", "unique")


@dataclass(frozen=True)
class Cell:
    """One thing to measure, some times over."""

    version: str
    data: DataSet
    partitions: int
    way: str
    """``alone``, ``tasks`` (a process per task) or ``cores`` (no more of them than cores)."""


@dataclass(frozen=True)
class Plan:
    """What was asked for, and the cells that follow."""

    rows: int
    versions: tuple[str, ...]
    partitions: tuple[int, ...]
    files: tuple[int, ...]
    ways: tuple[str, ...]

    @property
    def base_files(self) -> int:
        """The number of files of most tables: 10 of 5, 10, 20."""
        return sorted(self.files)[len(self.files) // 2]

    @property
    def base_partitions(self) -> int:
        """The number of partitions of figures 4.1 and 4.6: 20, the thesis's best, if asked for."""
        return 20 if 20 in self.partitions else sorted(self.partitions)[len(self.partitions) // 2]

    def base_data(self, keys: str) -> DataSet:
        """The data of tables 4.3 to 4.8."""
        return DataSet(keys, self.rows, self.base_files)

    def table_4_1_data(self) -> DataSet:
        """Twice the rows, and each key in a file of its own."""
        return DataSet("10", 2 * self.rows, self.base_files, "sorted")

    def table_4_2_data(self) -> DataSet:
        """In fewer files, of as many rows each as those of table 4.1."""
        return DataSet("unique", self.rows, min(self.files))

    def cells(self) -> list[Cell]:
        """All cells of the versions and ways asked for, each once."""
        wanted = (
            cell for cell in self._all() if cell.way in self.ways and cell.version in self.versions
        )
        return list(dict.fromkeys(wanted))

    def _all(self) -> Iterator[Cell]:
        for partitions in self.partitions:
            for data in (self.table_4_1_data(), self.table_4_2_data()):
                yield Cell("plain", data, partitions, "tasks")
            for keys in KEYS:
                for version in self.versions:
                    yield Cell(version, self.base_data(keys), partitions, "alone")
                    yield Cell(version, self.base_data(keys), partitions, "cores")
        for files in self.files:  # figure 4.6
            for keys in KEYS:
                data = DataSet(keys, self.rows, files)
                yield Cell("flight", data, self.base_partitions, "alone")
