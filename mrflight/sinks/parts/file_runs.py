"""Gathers neighbouring small files into groups that a compaction writes as one file each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar


class SizedFile(Protocol):
    """A file whose size is known."""

    @property
    def size_bytes(self) -> int: ...


F = TypeVar("F", bound=SizedFile)


def file_runs(files: Sequence[F], target_bytes: int) -> Iterator[list[F]]:
    """Yield groups of neighbours that together have at most ``target_bytes``.

    A larger file is a group of its own.
    """
    run: list[F] = []
    held_bytes = 0
    for file in files:
        if run and held_bytes + file.size_bytes > target_bytes:
            yield run
            run, held_bytes = [], 0
        run.append(file)
        held_bytes += file.size_bytes
    if run:
        yield run
