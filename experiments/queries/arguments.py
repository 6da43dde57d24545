"""The arguments of an engine's command line."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Arguments:
    query: Path
    """A file with SQL, which has the query's name."""
    data: Path
    out: Path
    """A folder that does not exist yet."""
    threads: int
    memory_bytes: int | None = None
    """What the engine may use, if its memory is limited."""

    @property
    def name(self) -> str:
        return self.query.stem

    @property
    def views(self) -> list[str]:
        return statements(self.query)[0]

    @property
    def sql(self) -> str:
        return statements(self.query)[1]

    @property
    def tables(self) -> dict[str, str]:
        """The files by the names of their tables."""
        return {path.stem: str(path) for path in sorted(self.data.glob("*.parquet"))}


def statements(file: Path) -> tuple[list[str], str]:
    """Return the ``create view`` statements of a file, and its query."""
    *views, query = file.read_text().split(";")
    return views, query


def parse_arguments() -> Arguments:
    query, data, out, threads, *memory = sys.argv[1:]
    memory_bytes = int(memory[0]) if memory else None
    return Arguments(Path(query), Path(data), Path(out), int(threads), memory_bytes)
