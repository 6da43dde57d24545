"""From a job's spec and its inputs as they were found to tasks: a pure function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from mrflight.errors import JobFileError
from mrflight.functions import FunctionRef
from mrflight.ids import MAX_PARTITIONS
from mrflight.meeting_plan import plan_meeting
from mrflight.memory import MemoryPlan
from mrflight.merge_plan import plan_merge
from mrflight.reduction_plan import plan_reduction
from mrflight.shuffle.layout import plain_schema
from mrflight.side_plan import Side, key_of, plan_side
from mrflight.sources.base import Source
from mrflight.spec import JobSpec
from mrflight.stream_plan import Stream, plan_stream
from mrflight.workers.reducer import Reduction
from mrflight.workers.stage_rows import Meeting
from mrflight.workers.tasks import MapTask, SampleTask

SPLIT_BYTES = 64 * 2**20
"""Of a map task: long against the cost of a task, short against the length of a stage."""

_MAPS_PER_WORKER = 4
"""So that none waits long for the last map: experiments/idle_workers.py measures it."""

_LEAST_SPLIT_BYTES = 8 * 2**20
"""That is made for it: a map costs some milliseconds, and its blocks are smaller."""

AUTO_PARTITION_BYTES = 64 * 2**20
"""Of rows in memory per partition where ``partitions`` is auto. With half as much lineitem's six
million rows took 1.1 of the time to HDFS, in two of three pairs; in the third they took less."""

_LEAST_BLOCK_BYTES = 16 * 2**10
"""A shuffle writer's budget should hold such a block for each partition; see transport.py."""

_LEAST_COMPRESSED_BYTES = 256 * 2**20
"""Of rows in memory where ``compression`` is auto. Of lineitem's 1 GiB of rows a job took 0.7 to
1.0 of the time with lz4, and 0.6 of the memory; of 10 GiB 0.8 of the time, once. At 0.3 GiB the
time was the same within the noise (6 pairs), and the memory 0.7."""

MAX_DATA_SERVERS = 64
"""Of an embedded cluster: each is a process on this machine."""


@dataclass(frozen=True)
class StagePlan:
    """Everything that is decided of a stage before its first task runs."""

    partitions: int
    sides: tuple[Side, ...]
    """One, unless tables meet in the reduces, or where they are read."""
    stream: Stream | None
    """The input whose rows go through no shuffle, as the sides' come to them."""
    meeting: Meeting | None
    """How they do."""
    reduction: Reduction
    compression: str
    """Of blocks."""
    resizes: bool
    """Whether small partitions may share a part file, and heavy ones be cut into shares, as nobody
    asked for so many."""

    @property
    def map_tasks(self) -> tuple[MapTask, ...]:
        """Of all sides."""
        return tuple(task for side in self.sides for task in side.map_tasks)

    @property
    def sample_tasks(self) -> tuple[SampleTask, ...]:
        """Of all sides."""
        return tuple(task for side in self.sides for task in side.sample_tasks)

    @property
    def functions(self) -> set[FunctionRef]:
        """The users' functions that the tasks will call."""
        named = [self.reduction.function, self.stream.row_map if self.stream else None]
        for task in self.map_tasks:
            named += [task.row_map, task.partitioner.function]
        return {each for each in named if isinstance(each, FunctionRef)}

    @property
    def result_schema(self) -> pa.Schema | None:
        """None where a function will say it."""
        schemas = {side.name: side.schema for side in self.sides}
        if self.stream is not None:
            schemas[self.stream.source.name] = self.stream.schema
        known = {name: plain_schema(each) for name, each in schemas.items() if each is not None}
        if len(known) < len(schemas):
            return None
        met = self.meeting.check(known) if self.meeting else next(iter(known.values()))
        return self.reduction.result_schema(met)


def plan_stage(
    spec: JobSpec,
    sources: Sequence[Source],
    folder: str,
    workers: int,
    memory: MemoryPlan,
) -> StagePlan:
    """The tasks of a stage, or of a job that has one, which is what ``spec`` says.

    Raises JobError for what can be seen to be wrong before it runs.
    """
    _check_numbers(spec)
    meeting = plan_meeting(spec)
    stream = plan_stream(spec, meeting, sources, folder)
    sources = [source for source in sources if stream is None or source is not stream.source]
    rows_bytes = sum(source.rows_bytes for source in sources)
    partitions = 1 if stream else count_partitions(spec, rows_bytes, workers, memory)
    keys = {name: key_of(spec, section) for name, section in spec.inputs.items()}
    unique = plan_merge(spec, keys, partitions)
    reduction = replace(plan_reduction(spec, folder), unique=unique)
    total = sum(split.size_bytes for source in sources for split in source.splits)
    side = partial(
        plan_side,
        spec,
        folder=folder,
        partitions=partitions,
        reduction=reduction,
        is_met=meeting is not None,
        compression=choose_compression(spec, rows_bytes),
        memory=memory,
        split_bytes=max(total // (workers * _MAPS_PER_WORKER), _LEAST_SPLIT_BYTES),
        is_broadcast=stream is not None,
    )
    tables = [[source] for source in sources] if meeting else [list(sources)]
    sides = tuple(side(sources=of_one) for of_one in tables)
    resizes = spec.shuffle.partitions == "auto" and reduction.function is None
    return StagePlan(
        partitions, sides, stream, meeting, reduction, choose_compression(spec, rows_bytes), resizes
    )


def _check_numbers(spec: JobSpec) -> None:
    """Raise JobFileError for numbers that cannot work."""
    replicas, servers = spec.shuffle.replicas, spec.cluster.data_servers
    if replicas < 1:
        raise JobFileError(f"shuffle.replicas: {replicas}; every block is kept at least once")
    if servers is not None and not 1 <= servers <= MAX_DATA_SERVERS:
        raise JobFileError(f"cluster.data_servers: {servers} is not from 1 to {MAX_DATA_SERVERS}")
    if spec.cluster.metadata is None and replicas > (servers or 1):
        raise JobFileError(
            f"shuffle.replicas: {replicas} copies are on as many data servers; set "
            f"cluster.data_servers to {replicas} or more"
        )


def count_partitions(spec: JobSpec, rows_bytes: int, workers: int, memory: MemoryPlan) -> int:
    """The number of partitions: as told, or for ``rows_bytes`` of rows as many as serve them best.

    So many that each fits a reducer's memory with room for what is made of it,
    and that every worker has some; so few that blocks stay worth sending.
    """
    wanted = spec.shuffle.partitions
    if spec.reduce is not None and spec.reduce.limit is not None:
        return 1  # which only the first rows of each map go to
    has_keys = any(section.key for section in spec.inputs.values())
    if spec.reduce is not None and spec.reduce.sql is not None and not has_keys:
        return 1  # nothing tells which rows belong together
    if wanted == "auto":
        each = min(AUTO_PARTITION_BYTES, max(1, memory.reducer // 4))
        needed = -(-rows_bytes // each)
        most = min(MAX_PARTITIONS, max(workers, memory.writer // _LEAST_BLOCK_BYTES))
        return max(1, min(max(needed, workers if needed > 1 else 1), most))
    if not 1 <= wanted <= MAX_PARTITIONS:
        raise JobFileError(
            f"shuffle.partitions: {wanted} is not from 1 to {MAX_PARTITIONS}; 'auto' takes as many "
            "as the input, the workers and the memory ask for"
        )
    return wanted


def choose_compression(spec: JobSpec, rows_bytes: int) -> str:
    """Of blocks: as told, or what serves a shuffle of ``rows_bytes`` of rows best."""
    if spec.shuffle.compression != "auto":
        return spec.shuffle.compression
    return "lz4" if rows_bytes >= _LEAST_COMPRESSED_BYTES else "none"
