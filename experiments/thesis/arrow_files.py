"""The second prototype: Arrow IPC files between steps, on one machine (section 3.2)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path

from pyarrow import ipc

from experiments.thesis.arrow_batches import SCHEMA, map_file, read_file, reduce_batches, split
from experiments.thesis.step import Folders, Step


def shuffle_file(mapped: Path, shuffled: list[Path]) -> None:
    """Write the rows of each batch to the files of their partitions."""
    with ExitStack() as stack:
        outs = [stack.enter_context(ipc.new_file(str(path), SCHEMA)) for path in shuffled]
        for batch in read_file(mapped):
            for partition, rows in split(batch, len(outs)):
                outs[partition].write_batch(rows)


def reduce_partition(shuffled: list[Path], reduced: Path) -> None:
    """Sum the weights of each key over the files of one partition."""
    reduce_batches(chain.from_iterable(map(read_file, shuffled)), reduced)


@contextmanager
def prototype(inputs: list[Path], work: Path, partitions: int) -> Iterator[Iterator[Step]]:
    """Return the steps for ``inputs``, which keep all their files in ``work``."""
    folders = Folders(work)
    mapped = [folders.mapped / f"{path.stem}.arrow" for path in inputs]
    numbers = range(partitions)
    shuffled = [
        [folders.shuffled / f"{path.stem}-{number:04}.arrow" for number in numbers]
        for path in mapped
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
