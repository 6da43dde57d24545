"""Cut files into splits. This is arithmetic only; nothing is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from mrflight.sources.base import Split
from mrflight.storage.store import FileVersion


def split_bytes_evenly(path: str, version: FileVersion, split_bytes: int) -> list[Split]:
    """Return byte ranges of about the same size that cover the file, none over ``split_bytes``."""
    size = version.size_bytes
    return Split(path, 0, size, size, version=version).divide(-(-size // split_bytes))


def whole_file(path: str, version: FileVersion) -> Split:
    """Return the one split of a file that can only be read from its start to its end."""
    return Split(path, 0, 1, version.size_bytes, version=version)


def split_runs(
    path: str, version: FileVersion, sizes: Sequence[int], split_bytes: int
) -> list[Split]:
    """Return runs of row groups or record batches, each as long as ``split_bytes`` allows.

    ``sizes`` are their bytes. There is at least one split, which may be empty.
    """
    bounds = [*_run_starts(sizes, split_bytes), len(sizes)]
    return [
        Split(path, start, stop, sum(sizes[start:stop]), version=version)
        for start, stop in pairwise(bounds)
    ]


def _run_starts(sizes: Sequence[int], split_bytes: int) -> Iterator[int]:
    yield 0
    filled = 0
    for i, size in enumerate(sizes):
        if i > 0 and filled + size > split_bytes:
            yield i
            filled = 0
        filled += size
