"""Cutting files into splits; plain arithmetic, no reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from mrflight.sources.base import Split


def split_bytes_evenly(path: str, size_bytes: int, split_bytes: int) -> list[Split]:
    """Byte ranges of about the same size that tile the file, none above ``split_bytes``."""
    return Split(path, 0, size_bytes, size_bytes).cut(-(-size_bytes // split_bytes))


def whole_file(path: str, size_bytes: int) -> Split:
    """The one split of a file that can only be read from its start to its end."""
    return Split(path, 0, 1, size_bytes)


def split_runs(path: str, weights: Sequence[int], split_bytes: int) -> list[Split]:
    """Runs of pieces (row groups, record batches), each as long as ``split_bytes`` allows.

    ``weights`` are the bytes of the pieces. At least one split, if an empty one.
    """
    bounds = [*_run_starts(weights, split_bytes), len(weights)]
    return [Split(path, start, stop, sum(weights[start:stop])) for start, stop in pairwise(bounds)]


def _run_starts(weights: Sequence[int], split_bytes: int) -> Iterator[int]:
    yield 0
    filled = 0
    for i, weight in enumerate(weights):
        if i > 0 and filled + weight > split_bytes:
            yield i
            filled = 0
        filled += weight
