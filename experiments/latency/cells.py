"""The cells of the experiment: an operation of a system on a table in a store, on some cores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Data(NamedTuple):
    """A table of TPC-H at a scale factor."""

    table: str
    scale: float

    @property
    def name(self) -> str:
        return f"{self.table}-sf{self.scale:g}"

    @property
    def key(self) -> str:
        return {"supplier": "s_suppkey", "lineitem": "l_orderkey"}[self.table]

    @property
    def rows(self) -> int:
        """The number of rows in the thesis. Lineitem differs from it by some thousands."""
        return round({"supplier": 10_000, "lineitem": 6_000_000}[self.table] * self.scale)


THESIS_DATA = (
    Data("supplier", 1),
    Data("supplier", 10),
    Data("supplier", 100),
    Data("lineitem", 1),
    Data("lineitem", 10),
)

SYSTEMS = {
    "mrflight": "a job; read_table",
    "mrflight-snappy": "the same with write_deltalake's codec",
    "delta-rs": "write_deltalake of a table in memory, as the thesis; to_pyarrow_table",
    "stream": "write_deltalake of a stream of batches from the files",
    "stream-zstd": "the same with mrflight's codec",
}
READERS = ("mrflight", "delta-rs")


@dataclass(frozen=True)
class Cell:
    """A combination that is measured several times."""

    operation: str
    store: str
    cores: int
    data: Data
    system: str

    @property
    def name(self) -> str:
        """The name of the cell in the JSON and in reports."""
        return "/".join(
            (self.operation, self.store, f"{self.cores} cores", self.data.name, self.system)
        )

    @classmethod
    def named(cls, name: str) -> Cell:
        """Return the cell with a name."""
        operation, store, cores, data, system = name.split("/")
        table, _, scale = data.rpartition("-sf")
        return cls(operation, store, int(cores.split()[0]), Data(table, float(scale)), system)


def cells(
    data: Sequence[Data],
    operations: Sequence[str],
    stores: Sequence[str],
    cores: Sequence[int],
    systems: Sequence[str],
) -> Iterator[Cell]:
    """Return all cells; cells that are compared follow each other."""
    for each in data:
        for store in stores:
            for count in cores:
                for operation in operations:
                    for system in systems:
                        if operation == "write" or system in READERS:
                            yield Cell(operation, store, count, each, system)
