"""What a job does, as far as its stages can be done alone in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from experiments.budgeting.stages import Stage


class Work(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The input of a job, and what becomes of its rows."""

    folder: str
    """Where its csv or Parquet files are."""
    key: tuple[str, ...] = ()
    map: str | None = None
    """A function of batches, ``file.py:function``."""
    reduce: Literal["groups", "sort", "none"] = "none"
    sums: dict[str, str] = {}
    """The columns of the result that are sums, and what they are sums of; ``*`` is a count."""
    combines: bool = False
    """True if each map sends the groups of its rows."""
    is_delta: bool = True
    query: str | None = None
    """The name of a query of TPC-H. Then only the folder of its tables counts."""

    @property
    def files(self) -> list[Path]:
        found = (path for path in Path(self.folder).iterdir() if not path.name.startswith("."))
        return sorted(found)


class Result(msgspec.Struct, frozen=True):
    """What a run of the job says about itself."""

    partitions: int
    bytes_shuffled: int
    rows_in: int
    rows_out: int


class Floor(msgspec.Struct, frozen=True):
    """The least processor seconds in which the work of a stage is done, and by what."""

    seconds: float
    how: str
    includes: tuple[Stage, ...] = ()
    """The stages before it whose work is done as well."""
