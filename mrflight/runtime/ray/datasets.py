"""Ray Data's datasets at either end of a shuffle: rows go over Flight, from and to Ray's tasks."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import pyarrow as pa
import ray.data
from ray.data import Datasink, Datasource, ReadTask
from ray.data.block import Block, BlockAccessor, BlockMetadata

from mrflight.errors import AttemptSupersededError, JobError
from mrflight.ids import MAX_ATTEMPTS
from mrflight.shuffle.client.partitioners import HashPartitioner, Partitioner
from mrflight.shuffle.client.shuffle import Shuffle
from mrflight.shuffle.client.writer import ShuffleWriter
from mrflight.shuffle.wire.partition_info import PartitionInfo


def to_dataset(
    shuffle: Shuffle, partitions: Sequence[int] | None = None, *, maps: int | None = None
) -> ray.data.Dataset:
    """The rows of a shuffle, or of some of its partitions, in their order.

    Each task of Ray's reads whole partitions, one or several, from the data servers, and makes
    its blocks where it runs. A partition's rows may be cut into several blocks. For a shuffle
    whose maps are all committed: with ``maps``, how many there are, MapOutputMissingError is raised
    as long as there are fewer; without it where there is none; 0 takes what is there.
    Raises JobError for a partition that is none, ShuffleNotFoundError.
    """
    return ray.data.read_datasource(_ShuffleSource(shuffle, partitions, maps))


def from_dataset(
    dataset: ray.data.Dataset,
    shuffle: Shuffle,
    key: Sequence[str] = (),
    *,
    first_map_id: int | None = None,
    partitioner: Partitioner | None = None,
    compression: str = "none",
) -> None:
    """Write a dataset's rows into a shuffle, by their ``key`` or ``partitioner``.

    Each task that writes is a map, numbered from ``first_map_id`` on, by default after those that
    are committed. Datasets that are written at the same time need numbers that are apart. All maps
    are committed on return. A task of the dataset that Ray makes again writes nothing twice.
    Called in a task that Ray may make again, tell ``first_map_id``: what an earlier try has
    committed stays, and counts once, where each map has the same rows in the same order.
    Raises JobError, as Ray's error of a task does, where a number is taken by other rows, and in
    a task that is made again without ``first_map_id``.
    """
    if isinstance(key, str):
        raise JobError(f"from_dataset: key must be a list of columns, [{key!r}]")
    if first_map_id is None:
        if _is_made_again():
            raise JobError(
                "from_dataset: Ray makes this task again, and nobody knows which maps its earlier "
                "try has written; give from_dataset a first_map_id, with which none counts twice"
            )
        first_map_id = max(shuffle.committed_maps(), default=-1) + 1
    # Another dataset's tasks have another one, so that they are told from this one's tasks that
    # Ray makes again. So have those of another try to write this one, whose rows tell.
    attempt = secrets.randbelow(MAX_ATTEMPTS)
    if partitioner is None and key:
        partitioner = HashPartitioner(tuple(key), shuffle.partitions)
    writer = partial(
        shuffle.writer,
        attempt=attempt,
        partitioner=partitioner and _WithItsRows(partitioner, partitioner.partitions),
        compression=compression,
    )
    dataset.write_datasink(_ShuffleSink(writer, first_map_id))


def _is_made_again() -> bool:
    """Whether this is another try of a task. Nothing that is public in Ray knows."""
    core = ray._private.worker.global_worker.core_worker
    return bool(core.get_current_task_attempt_number() > 0)


@dataclass(frozen=True)
class _WithItsRows(Partitioner):
    """Of a kind that the writer does not know, so that maps are compared by their rows as well."""

    inner: Partitioner
    partitions: int

    def ids(self, batch: pa.RecordBatch) -> pa.Int32Array:
        return self.inner.ids(batch)


class _ShuffleSource(Datasource):
    def __init__(
        self, shuffle: Shuffle, partitions: Sequence[int] | None, maps: int | None
    ) -> None:
        super().__init__()
        self._shuffle = shuffle
        self._schema, infos = shuffle.layout(maps=maps)
        self._infos = _wanted(infos, partitions)

    def get_name(self) -> str:
        return f"shuffle {self._shuffle.id}"

    def estimate_inmemory_data_size(self) -> int:
        return sum(info.size_bytes for info in self._infos)

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: object = None,
    ) -> list[ReadTask]:
        """As many as are wanted, and at most one a partition."""
        count = max(1, min(parallelism, len(self._infos)))
        total = len(self._infos)
        cuts = [total * number // count for number in range(count + 1)]
        runs = [self._infos[start:end] for start, end in pairwise(cuts)]
        return [
            ReadTask(
                partial(_blocks, self._shuffle, self._schema, [info.partition for info in run]),
                _metadata(run),
                self._schema,
                per_task_row_limit,
            )
            for run in runs
        ]


class _ShuffleSink(Datasink[None]):
    def __init__(self, writer: Callable[[int], ShuffleWriter], first_map_id: int) -> None:
        self._writer = writer
        self._first = first_map_id

    def write(self, blocks: Iterable[Block], ctx: Any) -> None:
        map_id = self._first + ctx.task_idx
        try:
            with self._writer(map_id) as out:
                for block in blocks:
                    for batch in BlockAccessor.for_block(block).to_arrow().to_batches():
                        out.write(batch)
        except AttemptSupersededError as error:
            if out.winner_sent_the_same:
                return
            raise JobError(
                f"map {map_id} of the shuffle was written by somebody else meanwhile; give each "
                "from_dataset a first_map_id that the others do not come to"
            ) from error


def _wanted(
    infos: Sequence[PartitionInfo], partitions: Sequence[int] | None
) -> list[PartitionInfo]:
    if partitions is None:
        return list(infos)
    if isinstance(partitions, int):
        raise JobError(f"to_dataset: partitions are a list, [{partitions}]")
    if wrong := [number for number in partitions if not 0 <= number < len(infos)]:
        raise JobError(f"partitions {wrong[:5]}: the shuffle has those from 0 to {len(infos) - 1}")
    return [infos[number] for number in partitions]


def _metadata(run: Sequence[PartitionInfo]) -> BlockMetadata:
    return BlockMetadata(
        num_rows=sum(info.rows for info in run),
        size_bytes=sum(info.size_bytes for info in run),
        input_files=None,
        exec_stats=None,
    )


def _blocks(shuffle: Shuffle, schema: pa.Schema, partitions: Sequence[int]) -> Iterator[pa.Table]:
    """In the task: the rows of some partitions, wherever they are by now, or an empty block."""
    yield schema.empty_table()  # what has no rows has columns
    for partition in partitions:
        for batch in shuffle.reader(partition, maps=0):  # which were looked at when it was made
            yield pa.Table.from_batches([batch])
