"""Converts shuffles from and to datasets of Ray Data, whose tasks send the rows over Flight."""

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

from mrflight.compute.schemas import empty_table
from mrflight.errors import AttemptSupersededError, JobError
from mrflight.ids import MAX_ATTEMPTS
from mrflight.shuffle.client.partitioners import HashPartitioner, Partitioner
from mrflight.shuffle.client.shuffle import Shuffle
from mrflight.shuffle.client.writer import ShuffleWriter
from mrflight.shuffle.wire.partition_info import PartitionInfo


def to_dataset(
    shuffle: Shuffle, partitions: Sequence[int] | None = None, *, maps: int | None = None
) -> ray.data.Dataset:
    """Return the rows of a shuffle, or of some of its partitions, in the order of partitions.

    Each task of Ray reads one or more whole partitions from the data servers, and makes its blocks
    where it runs. The rows of a partition may be in several blocks. ``maps`` is the number of maps
    that must be committed, by default 1; with 0 the rows that are there are taken.
    Raises MapOutputMissingError if fewer maps are committed, JobError for a partition that does not
    exist, and ShuffleNotFoundError.
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
    """Write the rows of a dataset into a shuffle, by their ``key`` or ``partitioner``.

    Each task that writes is a map. Maps are numbered from ``first_map_id``, by default after those
    that are committed. Datasets that are written at the same time need ranges that do not overlap.
    All maps are committed on return. A task of the dataset that Ray retries writes nothing twice.
    If this is called in a task that Ray may retry, give it a ``first_map_id``: maps that an earlier
    try has committed then stay, and count once, if each has the same rows in the same order.
    Raises JobError, as Ray's task error does, if a map with other rows has one of the numbers, and
    in a task that is retried without ``first_map_id``.
    """
    if isinstance(key, str):
        raise JobError(f"from_dataset: key must be a list of columns, [{key!r}]")
    if first_map_id is None:
        if _is_retried():
            raise JobError(
                "from_dataset: Ray retries this task, and it is unknown which maps its earlier try "
                "has written; give from_dataset a first_map_id, so that none counts twice"
            )
        first_map_id = max(shuffle.committed_maps(), default=-1) + 1
    # The attempt is random, so that tasks of another dataset differ from tasks of this one that
    # Ray retries. Another call for the same dataset differs, too; then the rows are compared.
    attempt = secrets.randbelow(MAX_ATTEMPTS)
    if partitioner is None and key:
        partitioner = HashPartitioner(tuple(key), shuffle.partitions)
    writer = partial(
        shuffle.writer,
        attempt=attempt,
        partitioner=partitioner and _OpaquePartitioner(partitioner, partitioner.partitions),
        compression=compression,
    )
    dataset.write_datasink(_ShuffleSink(writer, first_map_id))


def _is_retried() -> bool:
    """Return whether this task is a retry. Ray has no public API for this."""
    core = ray._private.worker.global_worker.core_worker
    return bool(core.get_current_task_attempt_number() > 0)


@dataclass(frozen=True)
class _OpaquePartitioner(Partitioner):
    """A partitioner of an unknown type, so that the writer also compares maps by their rows."""

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
        self._infos = _select_partitions(infos, partitions)

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
        """Return as many tasks as requested, but at most one per partition."""
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
                f"map {map_id} of the shuffle was written by another task meanwhile; give each "
                "from_dataset a first_map_id, so that their maps do not overlap"
            ) from error


def _select_partitions(
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
    """Yield, in a task, the rows of partitions, or an empty block."""
    yield empty_table(schema)  # a dataset without rows has columns, too
    for partition in partitions:
        for batch in shuffle.reader(partition, maps=0):  # `_ShuffleSource` checked them
            yield pa.Table.from_batches([batch])
