"""Which files of a Delta table become one: a pure function of what its log says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from mrflight.sources.delta_source import ActiveFile


class Bin(msgspec.Struct, frozen=True):
    """Files of the same partition values, in the order in which their rows are to follow."""

    files: tuple[ActiveFile, ...]
    """Two at least."""

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def paths(self) -> frozenset[str]:
        """As the log has them."""
        return frozenset(file.path for file in self.files)


def plan_bins(files: Iterable[ActiveFile], target_bytes: int) -> tuple[Bin, ...]:
    """Neighbours that are not larger than ``target_bytes`` together, and more than one.

    Neighbours are files that were committed after each other, and those of one commit by their
    names: the order of the rows of a sorted table, and of jobs that append a day each. A file
    that is as large as that by itself is left alone, and ends a bin.
    """
    by_values: dict[str, list[ActiveFile]] = {}
    for file in sorted(files, key=lambda file: (file.modification_time, file.path)):
        by_values.setdefault(repr(file.partition), []).append(file)  # NaN is no equal of itself
    return tuple(
        Bin(tuple(run))
        for of_values in by_values.values()
        for run in _runs(of_values, target_bytes)
        if len(run) > 1
    )


def _runs(files: Sequence[ActiveFile], target_bytes: int) -> Iterator[list[ActiveFile]]:
    run: list[ActiveFile] = []
    held_bytes = 0
    for file in files:
        if run and held_bytes + file.size_bytes > target_bytes:
            yield run
            run, held_bytes = [], 0
        run.append(file)
        held_bytes += file.size_bytes
    yield run
