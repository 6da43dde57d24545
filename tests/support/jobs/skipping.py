"""Sources that skip bad rows, and the rows that they skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from mrflight.config.input_spec import InputSpec
from mrflight.sources import open_source
from mrflight.sources.bad_rows import BadRow, BadRowLog
from mrflight.sources.base import Source
from mrflight.sources.packing import pack

TYPES = {"n": "int64", "s": "string"}
Row = tuple[int | None, str | None]
Bad = tuple[str, int, str]
"""The name of a file, a line, and what it has."""


class BadRows(BadRowLog):
    """Holds the bad rows, which an attempt would write to a file."""

    needs_rows = True

    def __init__(self) -> None:
        super().__init__()
        self.found: list[BadRow] = []

    def add(self, count: int, describe: Callable[[], Iterable[BadRow]]) -> None:
        super().add(count, describe)
        self.found += describe()
        assert self.rows == len(self.found)


def open_skipping(folder: Path, path: str, split_bytes: int = 1 << 30, **spec: Any) -> Source:
    given = InputSpec(path=path, bad_rows="skip", **{"types": TYPES, **spec})
    return open_source("visits", given, folder, {}, split_bytes)


def read(source: Source, pack_weight: int = 0) -> tuple[list[Row], list[Bad]]:
    """Return the rows of a source, and those that were skipped."""
    log = BadRows()
    reader = source.reader.with_bad_rows(log)
    splits = pack(source.splits, pack_weight) if pack_weight else source.splits
    batches = [batch for split in splits for batch in reader.read(split)]
    rows = [(row["n"], row["s"]) for batch in batches for row in batch.to_pylist()]
    return rows, [(Path(each.file).name, each.line, each.text) for each in log.found]
