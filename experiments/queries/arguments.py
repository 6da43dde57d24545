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

    @property
    def name(self) -> str:
        return self.query.stem

    @property
    def sql(self) -> str:
        return self.query.read_text()

    @property
    def tables(self) -> dict[str, str]:
        """The files by the names of their tables."""
        return {path.stem: str(path) for path in sorted(self.data.glob("*.parquet"))}


def parse_arguments() -> Arguments:
    query, data, out, threads = sys.argv[1:]
    return Arguments(Path(query), Path(data), Path(out), int(threads))
