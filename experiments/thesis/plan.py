"""Plan the runs for the thesis's tables and figures.

The numbers of files replace the thesis's 5, 10 and 20. Its tables use the middle one, table 4.2
uses the smallest, and figure 4.6 uses all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from experiments.datasets import DataSet

KEYS = ("10", "unique")


@dataclass(frozen=True)
class Cell:
    """A combination that is measured several times."""

    version: str
    data: DataSet
    partitions: int
    way: str
    """``alone``, ``tasks`` (a process per task) or ``cores`` (as many processes as cores)."""


@dataclass(frozen=True)
class Plan:
    """The requested measurements, and the cells that follow from them."""

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
        """The number of partitions of figures 4.1 and 4.6: 20, the thesis's best, if requested."""
        return 20 if 20 in self.partitions else sorted(self.partitions)[len(self.partitions) // 2]

    def base_data(self, keys: str) -> DataSet:
        """The data of tables 4.3 to 4.8."""
        return DataSet(keys, self.rows, self.base_files)

    def table_4_1_data(self) -> DataSet:
        """The data of table 4.1: twice the rows, and each key in only one file."""
        return DataSet("10", 2 * self.rows, self.base_files, "sorted")

    def table_4_2_data(self) -> DataSet:
        """The data of table 4.2: fewer files, with as many rows each as those of table 4.1."""
        return DataSet("unique", self.rows, min(self.files))

    def cells(self) -> list[Cell]:
        """Return all cells of the requested versions and ways, each once."""
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
