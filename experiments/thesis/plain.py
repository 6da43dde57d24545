"""The first prototype: plain Python, line by line, with text files between steps (section 3.1)."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from experiments.thesis.md5 import partition_of
from experiments.thesis.step import WEIGHTS, Folders, Step


def map_file(source: Path, mapped: Path) -> None:
    """Replace the visitor of each line with its weight."""
    with source.open(newline="") as visits, mapped.open("w") as out:
        rows = csv.reader(visits)
        next(rows)
        out.writelines(f"{url},{WEIGHTS[visitor]}\n" for url, visitor in rows)


def shuffle_file(mapped: Path, shuffled: list[Path]) -> None:
    """Append each line to the file of its partition."""
    with ExitStack() as stack:
        lines = stack.enter_context(mapped.open())
        writes = [stack.enter_context(path.open("w")).write for path in shuffled]
        partitions = len(shuffled)
        for line in lines:
            key, _, _ = line.partition(",")
            writes[partition_of(key, partitions)](line)


def reduce_partition(shuffled: list[Path], reduced: Path) -> None:
    """Sum the weights of each key over the files of one partition."""
    clicks: dict[str, int] = {}
    for path in shuffled:
        with path.open() as lines:
            for line in lines:
                key, _, weight = line.partition(",")
                clicks[key] = clicks.get(key, 0) + int(weight)
    with reduced.open("w") as out:
        out.write("url,clicks\n")
        out.writelines(f"{key},{count}\n" for key, count in clicks.items())


@contextmanager
def prototype(inputs: list[Path], work: Path, partitions: int) -> Iterator[Iterator[Step]]:
    """Return the steps for ``inputs``, which keep all their files in ``work``."""
    folders = Folders(work)
    mapped = [folders.mapped / path.name for path in inputs]
    numbers = range(partitions)
    shuffled = [
        [folders.shuffled / f"{path.stem}-{number:04}.csv" for number in numbers] for path in mapped
    ]
    yield iter(
        [
            Step("map", map_file, list(zip(inputs, mapped, strict=True))),
            Step("shuffle", shuffle_file, list(zip(mapped, shuffled, strict=True))),
            Step(
                "reduce",
                reduce_partition,
                [
                    ([files[number] for files in shuffled], folders.reduced / f"{number:04}.csv")
                    for number in numbers
                ],
            ),
        ]
    )
