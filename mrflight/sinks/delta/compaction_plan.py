"""Plans a compaction: decides from the log of a Delta table which files become one file."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from mrflight.sinks.parts.file_runs import file_runs
from mrflight.sources.delta_source import ActiveFile


class Bin(msgspec.Struct, frozen=True):
    """Files with the same partition values, in the order that their rows will have."""

    files: tuple[ActiveFile, ...]
    """At least two."""

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def paths(self) -> frozenset[str]:
        """The paths of the files in the log."""
        return frozenset(file.path for file in self.files)


def plan_bins(files: Iterable[ActiveFile], target_bytes: int) -> tuple[Bin, ...]:
    """Return groups of at least two neighbours that together have at most ``target_bytes``.

    Files are neighbours in the order of their commits, and within a commit in the order of their
    names. This is the order of the rows of a sorted table, and of jobs that append a day each. A
    file of at least ``target_bytes`` is left alone, and ends a group.
    """
    by_values: dict[str, list[ActiveFile]] = {}
    for file in sorted(files, key=lambda file: (file.modification_time, file.path)):
        values = repr(file.partition)  # repr, because NaN does not equal itself
        by_values.setdefault(values, []).append(file)
    return tuple(
        Bin(tuple(run))
        for neighbours in by_values.values()
        for run in file_runs(neighbours, target_bytes)
        if len(run) > 1
    )
