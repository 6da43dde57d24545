"""Write visits to web sites as csv files: ``url,visitor``, one line per visit.

Row ``i`` is a function of (seed, i, rows, keys) alone, so the files are the
same however they are batched, and a billion rows take no more memory than a
million. Urls are 18 bytes, as in the data that the shuffle was first measured
with (Ferretti 2023, section 4.3: 8196 rows of url and int32 are 213096 bytes).
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

MAX_KEYS = 10**9  # the digits of a url
_HEADER = b"url,visitor\n"
_LINE = np.frombuffer(b"www.s000000000.com,Robot\n", np.uint8)
_USER = np.frombuffer(b"User\n", np.uint8)
_DIGITS = np.frombuffer(b"".join(b"%03d" % i for i in range(1000)), np.uint8).reshape(1000, 3)
_BATCH_ROWS = 1 << 17  # the arrays of one batch stay in the second-level cache
_MANIFEST = ".visits.json"

Numbers = NDArray[np.uint64]


@dataclass(frozen=True)
class Visits:
    """Which visits to write. ``keys`` sites, each with rows/keys visits, one more or less."""

    rows: int
    files: int
    keys: int
    seed: int = 0
    order: str = "random"
    """``random``: every site in every file. ``sorted``: the visits of a site lie together."""

    def __post_init__(self) -> None:
        if self.files < 1 or self.rows < 0:
            raise ValueError("rows and files cannot be negative, and one file is the least")
        if not min(self.rows, 1) <= self.keys <= min(self.rows, MAX_KEYS):
            raise ValueError(f"keys must be from 1 to the number of rows, at most {MAX_KEYS:,}")

    def rows_of(self, file: int) -> range:
        """The rows that file number ``file`` holds."""
        return range(self.rows * file // self.files, self.rows * (file + 1) // self.files)


def mix(numbers: Numbers, salt: int) -> Numbers:
    """A 64-bit hash of each number: the finalizer of splitmix64 (Steele et al. 2014)."""
    mixed = numbers + np.uint64((0x9E3779B97F4A7C15 * (salt + 1)) & (2**64 - 1))
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def permute(numbers: Numbers, size: int, seed: int) -> Numbers:
    """Each number below ``size`` to another one below it, no two to the same.

    A Feistel network over pairs (left, right) of a grid a little larger than
    ``size``; a number that lands outside walks on until it is inside.
    """
    lefts = math.isqrt(max(size, 1) - 1) + 1
    rights = -(-size // lefts)
    left, right = numbers // np.uint64(rights), numbers % np.uint64(rights)
    for turn in range(3):
        left = (left + mix(right, seed + 2 * turn)) % np.uint64(lefts)
        right = (right + mix(left, seed + 2 * turn + 1)) % np.uint64(rights)
    permuted = left * np.uint64(rights) + right
    outside = permuted >= np.uint64(size)
    if outside.any():
        permuted[outside] = permute(permuted[outside], size, seed)
    return permuted


def lines(visits: Visits, rows: range) -> bytes:
    """The csv lines of ``rows``."""
    number = np.arange(rows.start, rows.stop, dtype=np.uint64)
    if visits.order == "random":
        key = permute(number, visits.rows, visits.seed * 8) % np.uint64(visits.keys)
    else:
        key = number * np.uint64(visits.keys) // np.uint64(visits.rows)
    text = np.tile(_LINE, (len(rows), 1))
    for column, power in ((5, 10**6), (8, 10**3), (11, 1)):
        text[:, column : column + 3] = _DIGITS[key // np.uint64(power) % np.uint64(1000)]
    is_user = mix(number, visits.seed * 8 + 7) >> np.uint64(63) == 1
    text[is_user, -6:-1] = _USER
    written = np.ones(text.shape, bool)
    written[is_user, -1] = False
    return text[written].tobytes()


def batches(rows: range) -> Iterator[range]:
    """``rows`` in pieces that fit the cache."""
    for start in range(rows.start, rows.stop, _BATCH_ROWS):
        yield range(start, min(start + _BATCH_ROWS, rows.stop))


def write_file(visits: Visits, file: int, path: Path) -> None:
    """One csv file, under a temporary name until it is whole."""
    unfinished = path.with_name(f".{path.name}.tmp")
    try:
        with unfinished.open("wb") as out:
            out.write(_HEADER)
            for batch in batches(visits.rows_of(file)):
                out.write(lines(visits, batch))
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def write(visits: Visits, folder: Path) -> list[Path]:
    """The files of ``visits`` in ``folder``, and no others; kept if they are there already.

    A hidden file says which visits the folder holds. It is written last, so
    that after a run that was killed all files are written again.
    """
    paths = [folder / f"visits-{file:04}.csv" for file in range(visits.files)]
    manifest = folder / _MANIFEST
    there = manifest.exists() and json.loads(manifest.read_text()) == asdict(visits)
    if there and sorted(folder.glob("visits-*.csv")) == paths:
        return paths
    folder.mkdir(parents=True, exist_ok=True)
    manifest.unlink(missing_ok=True)
    for stale in folder.glob("visits-*.csv"):
        stale.unlink()
    for file, path in enumerate(paths):
        write_file(visits, file, path)
    unfinished = manifest.with_suffix(".tmp")
    unfinished.write_text(json.dumps(asdict(visits)))
    unfinished.replace(manifest)
    return paths


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Write visits to web sites as csv files.")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=10)
    parser.add_argument(
        "--keys", help="number of sites, or 'unique'; 100,000 unless rows are fewer"
    )
    parser.add_argument("--order", choices=["random", "sorted"], default="random")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "visits")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    try:
        keys = options.rows if options.keys == "unique" else int(options.keys or 100_000)
        keys = keys if options.keys else min(keys, options.rows)
        visits = Visits(options.rows, options.files, keys, options.seed, options.order)
    except ValueError as wrong:
        parser.error(str(wrong))
    paths = write(visits, options.out)
    size = sum(path.stat().st_size for path in paths)
    where = os.path.relpath(options.out)
    print(f"{visits.rows:,} visits, {keys:,} sites: {len(paths)} files, {size:,} bytes in {where}")


if __name__ == "__main__":
    main()
