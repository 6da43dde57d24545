"""From a job's spec and its inputs as they were found to tasks: a pure function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from mrflight.compute.layout import canonical_schema
from mrflight.config.functions import FunctionRef
from mrflight.config.memory import MemoryPlan
from mrflight.config.spec import JobSpec
from mrflight.errors import JobFileError
from mrflight.planner.broadcast_plan import Stream, plan_stream
from mrflight.planner.cogroup_plan import plan_cogroup
from mrflight.planner.column_pruning import narrowed
from mrflight.planner.keys import ONLY_SIDE, key_of
from mrflight.planner.map_plan import ShuffleInput, plan_map, plan_side
from mrflight.planner.merge_plan import plan_merge
from mrflight.planner.partition_count import PartitionCount, count_partitions
from mrflight.planner.reduce_spec import plan_reduce_spec
from mrflight.sources.base import Source
from mrflight.tasks.reducer import ReduceSpec
from mrflight.tasks.stage_rows import CoGroup
from mrflight.tasks.tasks import MapTask, SampleTask

SPLIT_BYTES = 64 * 2**20
"""Of a map task: long against the cost of a task, short against the length of a stage."""

_MAPS_PER_WORKER = 4
"""So that none waits long for the last map: experiments/idle_workers.py measures it."""

_LEAST_SPLIT_BYTES = 8 * 2**20
"""That is made for it: a map costs some milliseconds, and its blocks are smaller."""

LEAST_COMPRESSED_BYTES = 256 * 2**20
"""Of rows in memory where ``compression`` is auto. Of lineitem's 1 GiB of rows a job took 0.7 to
1.0 of the time with lz4, and 0.6 of the memory; of 10 GiB 0.8 of the time, once. At 0.3 GiB the
time was the same within the noise (6 pairs), and the memory 0.7. Since rows travel narrow it takes
as long either way (1 and 10 GiB, twice), and sends two thirds of the bytes."""

MAX_DATA_SERVERS = 64
"""Of an embedded cluster: each is a process on this machine."""


class StagePlan(msgspec.Struct, frozen=True):
    """Everything that is decided of a stage before its first task runs."""

    counted: PartitionCount
    sides: tuple[ShuffleInput, ...]
    """One, unless tables meet in the reduces, or where they are read."""
    stream: Stream | None
    """The input whose rows go through no shuffle, as the sides' come to them."""
    cogroup: CoGroup | None
    """How they do."""
    reduce_spec: ReduceSpec
    compression: str
    """Of blocks."""
    is_adaptive: bool
    """Whether small partitions may share a part file, and heavy ones be cut into shares, as nobody
    asked for so many."""

    @property
    def partitions(self) -> int:
        """How many there are."""
        return self.counted.number

    @property
    def map_tasks(self) -> tuple[MapTask, ...]:
        """Of all sides."""
        return tuple(task for side in self.sides for task in side.map_tasks)

    @property
    def sample_tasks(self) -> tuple[SampleTask, ...]:
        """Of all sides."""
        return tuple(task for side in self.sides for task in side.sample_tasks)

    @property
    def rows_bytes(self) -> int:
        """Of all that it reads, in memory, roughly."""
        streamed = self.stream.source.rows_bytes if self.stream is not None else 0
        return self.counted.rows_bytes + streamed

    def sliceable_sides(self, schemas: Sequence[pa.Schema]) -> Mapping[int, bool]:
        """The sides of which tasks can each have a share, and the other sides whole.

        And of each whether the shares leave a rest. ``schemas`` are those of the sides' rows.
        """
        if not self.reduce_spec.keeps_rows:
            return {}
        if self.cogroup is None:
            return ONLY_SIDE
        names = [side.name for side in self.sides]
        shared = self.cogroup.shared(dict(zip(names, map(canonical_schema, schemas), strict=True)))
        return {names.index(name): leaves_rest for name, leaves_rest in shared.items()}

    @property
    def functions(self) -> set[FunctionRef]:
        """The users' functions that the tasks will call."""
        named = [self.reduce_spec.function, self.stream.row_map if self.stream else None]
        for side in self.sides:
            named += side.row_maps.values()
            named += (partitioner.function for partitioner in side.partitioners.values())
        return {each for each in named if isinstance(each, FunctionRef)}

    @property
    def result_schema(self) -> pa.Schema | None:
        """None where a function will say it."""
        schemas = {side.name: side.schema for side in self.sides}
        if self.stream is not None:
            schemas[self.stream.source.name] = self.stream.schema
        known = {name: canonical_schema(each) for name, each in schemas.items() if each is not None}
        if len(known) < len(schemas):
            return None
        met = self.cogroup.check(known) if self.cogroup else next(iter(known.values()))
        return self.reduce_spec.result_schema(met)


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
    cogroup = plan_cogroup(spec)
    maps = {name: plan_map(name, section, folder) for name, section in spec.inputs.items()}
    sources = [narrowed(spec, source, maps[source.name]) for source in sources]
    stream = plan_stream(spec, cogroup, sources, maps)
    sources = [source for source in sources if stream is None or source is not stream.source]
    rows_bytes = sum(source.rows_bytes for source in sources)
    counted = count_partitions(spec, rows_bytes, workers, memory)
    if stream is not None:
        counted = replace(counted, number=1, reason="broadcast")
    keys = {name: key_of(spec, section) for name, section in spec.inputs.items()}
    unique = plan_merge(spec, keys, counted.number)
    reduce_spec = replace(plan_reduce_spec(spec, folder), unique=unique)
    total = sum(split.size_bytes for source in sources for split in source.splits)
    side = partial(
        plan_side,
        spec,
        folder=folder,
        maps=maps,
        partitions=counted.number,
        reduce_spec=reduce_spec,
        is_met=cogroup is not None,
        compression=choose_compression(spec, rows_bytes),
        memory=memory,
        split_bytes=max(total // (workers * _MAPS_PER_WORKER), _LEAST_SPLIT_BYTES),
        is_broadcast=stream is not None,
    )
    tables = [[source] for source in sources] if cogroup else [list(sources)]
    sides = tuple(side(sources=of_one) for of_one in tables)
    is_adaptive = spec.shuffle.partitions == "auto" and reduce_spec.function is None
    return StagePlan(
        counted,
        sides,
        stream,
        cogroup,
        reduce_spec,
        choose_compression(spec, rows_bytes),
        is_adaptive,
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


def choose_compression(spec: JobSpec, rows_bytes: int) -> str:
    """Of blocks: as told, or what serves a shuffle of ``rows_bytes`` of rows best."""
    if spec.shuffle.compression != "auto":
        return spec.shuffle.compression
    return "lz4" if rows_bytes >= LEAST_COMPRESSED_BYTES else "none"
