"""What is measured: an operation of a system on a table in a store, with so many cores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Data(NamedTuple):
    """A table of TPC-H, at a scale factor."""

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
        """As the thesis counts them; lineitem has some thousands more or less."""
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
    """What is repeated."""

    operation: str
    store: str
    cores: int
    data: Data
    system: str

    @property
    def name(self) -> str:
        """In the JSON, and for people."""
        return "/".join(
            (self.operation, self.store, f"{self.cores} cores", self.data.name, self.system)
        )

    @classmethod
    def named(cls, name: str) -> Cell:
        """The cell of such a name."""
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
    """All of them, those of a system beside those that they are compared with."""
    for each in data:
        for store in stores:
            for count in cores:
                for operation in operations:
                    for system in systems:
                        if operation == "write" or system in READERS:
                            yield Cell(operation, store, count, each, system)
