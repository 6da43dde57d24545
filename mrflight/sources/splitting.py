"""Cutting files into splits; plain arithmetic, no reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from mrflight.sources.base import Split
from mrflight.sources.file_version import FileVersion


def split_bytes_evenly(path: str, version: FileVersion, split_bytes: int) -> list[Split]:
    """Byte ranges of about the same size that tile the file, none above ``split_bytes``."""
    size = version.size_bytes
    return Split(path, 0, size, size, version=version).cut(-(-size // split_bytes))


def whole_file(path: str, version: FileVersion) -> Split:
    """The one split of a file that can only be read from its start to its end."""
    return Split(path, 0, 1, version.size_bytes, version=version)


def split_runs(
    path: str, version: FileVersion, weights: Sequence[int], split_bytes: int
) -> list[Split]:
    """Runs of pieces (row groups, record batches), each as long as ``split_bytes`` allows.

    ``weights`` are the bytes of the pieces. At least one split, if an empty one.
    """
    bounds = [*_run_starts(weights, split_bytes), len(weights)]
    return [
        Split(path, start, stop, sum(weights[start:stop]), version=version)
        for start, stop in pairwise(bounds)
    ]


def _run_starts(weights: Sequence[int], split_bytes: int) -> Iterator[int]:
    yield 0
    filled = 0
    for i, weight in enumerate(weights):
        if i > 0 and filled + weight > split_bytes:
            yield i
            filled = 0
        filled += weight
