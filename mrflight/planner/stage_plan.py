"""Plans a stage from its spec and the inputs that were found: a pure function."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from mrflight.compute.layout import canonical_schema
from mrflight.config.functions import FunctionRef
from mrflight.config.memory import MemoryPlan
from mrflight.config.spec import JobSpec
from mrflight.errors import JobFileError
from mrflight.planner.column_pruning import keep_columns, prune_columns
from mrflight.planner.keys import ONLY_SIDE, key_of
from mrflight.planner.map_plan import (
    ShuffleInput,
    StageContext,
    plan_shuffle_input,
)
from mrflight.planner.merge_plan import plan_merge
from mrflight.planner.partition_count import PartitionCount, count_partitions
from mrflight.planner.reduce_spec import plan_reduce_spec
from mrflight.planner.row_maps import plan_map
from mrflight.sources.base import Source, Split
from mrflight.sources.packing import ONE_MAP_BYTES, weight
from mrflight.tasks.map_task import MapTask
from mrflight.tasks.mapper import maps_of
from mrflight.tasks.reducer import ReduceSpec
from mrflight.tasks.sample_task import SampleTask

if TYPE_CHECKING:
    from mrflight.planner.cogroup_plan import StreamedSide
    from mrflight.planner.fragment_stage import FragmentStage
    from mrflight.tasks.cogroup import CoGroup

SPLIT_BYTES = 64 * 2**20
"""The size of a map task's input: long against the cost of a task, short against the stage."""

_MAPS_PER_WORKER = 4
"""Few workers then wait for the last map: two workers wait for 2 to 3 % of the stage, and four for
3 %, where ten splits made them wait for 9 %."""

_MIN_SPLIT_BYTES = 8 * 2**20
"""Smaller splits are not made for `_MAPS_PER_WORKER`: a map costs some milliseconds, and its blocks
get smaller."""

_PACKS_PER_WORKER = 2
"""Small files are packed into so many maps, until these reach `SPLIT_BYTES`. A map of files takes
10 ms beside their rows: with four for each of two workers a job on 5,000 files took 0.67 s, with
two 0.61 s."""

MIN_COMPRESSED_BYTES = 256 * 2**20
"""Rows in memory from which on ``compression = "auto"`` compresses. For 1 GiB of lineitem's rows a
job took 0.7 to 1.0 of the time with lz4, and 0.6 of the memory; for 10 GiB it took 0.8 of the time,
measured once. At 0.3 GiB the time was the same within the noise (6 pairs), and the memory 0.7.
Since columns are encoded for the wire, the time is the same either way (1 and 10 GiB, twice), and
two thirds of the bytes are sent."""

MAX_DATA_SERVERS = 64
"""The limit of an embedded cluster, where each is a process on this machine."""


class StagePlan(msgspec.Struct, frozen=True):
    """Everything that is decided of a stage before its first task runs."""

    counted: PartitionCount
    sides: tuple[ShuffleInput, ...]
    """One, unless tables are joined or queried together."""
    stream: StreamedSide | None
    """The input that is joined with the broadcast sides where it is read, without a shuffle."""
    cogroup: CoGroup | None
    """The join or the sql that makes one table of several sides."""
    reduce_spec: ReduceSpec
    compression: str
    """The compression of blocks."""
    is_adaptive: bool
    """True if small partitions may be coalesced into part files and skewed ones split, because the
    job does not set the number of partitions."""
    filtered_by: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The sides of which rows are sent only with keys that another side has, which is before it."""
    is_map_only: bool = False
    """True if each map writes part files of its own, because nothing brings rows together."""

    @property
    def partitions(self) -> int:
        return self.counted.number

    @property
    def map_tasks(self) -> tuple[MapTask, ...]:
        """The map tasks of all sides."""
        return tuple(task for side in self.sides for task in side.map_tasks)

    @property
    def sample_tasks(self) -> tuple[SampleTask, ...]:
        """The sample tasks of all sides."""
        return tuple(task for side in self.sides for task in side.sample_tasks)

    @property
    def runs_directly(self) -> bool:
        """True if nothing has to be shuffled: there is one map and one partition, or only maps.

        A user's partitioner is called, and a sample is taken, only for a shuffle.
        """
        if self.is_map_only:
            return True
        if self.partitions > 1 or self.stream is not None or self.cogroup is not None:
            return False
        maps = self.map_tasks
        return len(maps) == 1 and not self.sample_tasks and maps[0].partitioner.function is None

    @property
    def rows_bytes(self) -> int:
        """The size of all rows that the stage reads, in memory, roughly."""
        streamed = self.stream.source.rows_bytes if self.stream is not None else 0
        return self.counted.rows_bytes + streamed

    def sliceable_sides(self, schemas: Sequence[pa.Schema]) -> Mapping[int, bool]:
        """Return the sides of which tasks can read a slice each, with the other sides whole.

        The value says whether the slices have an outer remainder, which is a task of its own.
        ``schemas`` are those of the sides' rows.
        """
        if not self.reduce_spec.keeps_rows:
            return {}
        if self.cogroup is None:
            return ONLY_SIDE
        names = [side.name for side in self.sides]
        by_name = dict(zip(names, map(canonical_schema, schemas), strict=True))
        sliceable = self.cogroup.sliceable(by_name)
        return {names.index(name): has_remainder for name, has_remainder in sliceable.items()}

    @property
    def functions(self) -> set[FunctionRef]:
        """The users' functions that the tasks will call."""
        named: list[object] = [self.reduce_spec.function]
        named += maps_of(self.stream.row_map) if self.stream else ()
        for side in self.sides:
            named += (each for row_map in side.row_maps.values() for each in maps_of(row_map))
            named += (partitioner.function for partitioner in side.partitioners.values())
        return {each for each in named if isinstance(each, FunctionRef)}

    @property
    def result_schema(self) -> pa.Schema | None:
        """The schema of the result; None if only a user's function determines it."""
        schemas = {side.name: side.schema for side in self.sides}
        if self.stream is not None:
            schemas[self.stream.source.name] = self.stream.schema
        known = {
            name: canonical_schema(schema) for name, schema in schemas.items() if schema is not None
        }
        if len(known) < len(schemas):
            return None
        joined = self.cogroup.check(known) if self.cogroup else next(iter(known.values()))
        return self.reduce_spec.result_schema(joined)


def plan_stage(
    spec: JobSpec,
    sources: Sequence[Source],
    folder: str,
    workers: int,
    memory: MemoryPlan,
    fragment: FragmentStage | None = None,
) -> StagePlan:
    """Plan a stage, whose inputs, shuffle and reduce are those of ``spec``.

    A ``fragment`` of a query is what it runs in place of a reduce.
    Raises JobError for mistakes that can be found before the stage runs.
    """
    _check_numbers(spec)
    cogroup = _plan_cogroup(spec) if fragment is None else fragment.fragment
    row_maps = {source.name: plan_map(spec, source, folder) for source in sources}
    pruned = [
        prune_columns(spec, source, row_maps[source.name])
        if fragment is None
        else keep_columns(source, row_maps[source.name], fragment.needed(source.name))
        for source in sources
    ]
    sources = [source for source, _ in pruned]
    row_maps |= {source.name: row_map for source, row_map in pruned}
    stream = None
    if fragment is not None:
        stream = fragment.stream(sources, row_maps)
    elif cogroup is not None:
        from mrflight.planner.cogroup_plan import plan_broadcast

        stream = plan_broadcast(spec, cogroup, sources, row_maps)
    shuffled = [source for source in sources if stream is None or source is not stream.source]
    rows_bytes = sum(source.rows_bytes for source in shuffled)
    counted = count_partitions(spec, rows_bytes, workers, memory)
    if stream is not None:
        counted = replace(counted, number=1, reason="broadcast")
    keys = {name: key_of(spec, section) for name, section in spec.inputs.items()}
    unique = plan_merge(spec, keys, counted.number)
    reduce_spec = replace(plan_reduce_spec(spec, folder), unique=unique)
    splits = [split for source in shuffled for split in source.splits]
    may_be_direct = len(sources) == 1 and counted.number == 1
    context = StageContext(
        spec,
        folder,
        memory,
        row_maps,
        counted.number,
        choose_compression(spec, rows_bytes),
        _max_split_bytes(splits, workers),
        _pack_weight(spec, splits, workers, may_be_direct=may_be_direct),
        reduce_spec,
        is_joined=cogroup is not None,
        is_broadcast=stream is not None,
        partitioners=fragment.partitioners if fragment is not None else {},
        runtime_filters=fragment.runtime_filters if fragment is not None else {},
    )
    tables = [[source] for source in shuffled] if cogroup else [shuffled]
    sides = tuple(plan_shuffle_input(context, table) for table in tables)
    is_adaptive = spec.shuffle.partitions == "auto" and reduce_spec.function is None
    return StagePlan(
        counted,
        sides,
        stream,
        cogroup,
        reduce_spec,
        context.compression,
        is_adaptive,
        fragment.filtered_by if fragment is not None else {},
        is_map_only=fragment is None and cogroup is None and spec.is_map_only,
    )


def _max_split_bytes(splits: Sequence[Split], workers: int) -> int:
    """Return over how many bytes splits are cut, so that all workers have several maps."""
    total = sum(split.size_bytes for split in splits)
    by_count = math.ceil(total / (workers * _MAPS_PER_WORKER))
    return min(max(by_count, _MIN_SPLIT_BYTES), SPLIT_BYTES)


def _pack_weight(
    spec: JobSpec, splits: Sequence[Split], workers: int, *, may_be_direct: bool
) -> int:
    """Return up to which weight small splits are packed into one map.

    ``may_be_direct``: the stage may do without servers if it has one map (see
    `StagePlan.runs_directly`).
    """
    total = sum(map(weight, splits))
    is_auto = spec.has_output and spec.shuffle.partitions == "auto"
    if may_be_direct and is_auto and not spec.has_functions and total <= ONE_MAP_BYTES:
        return total
    return min(total // (workers * _PACKS_PER_WORKER), SPLIT_BYTES)


def _plan_cogroup(spec: JobSpec) -> CoGroup | None:
    """Return the join or the sql of the stage; None if the rows of all inputs form one table.

    Raises JobFileError if the sections contradict each other.
    """
    reduce = spec.reduce
    if reduce is not None and (reduce.sql is not None or reduce.join is not None):
        from mrflight.planner.cogroup_plan import plan_cogroup  # most jobs do not need it

        return plan_cogroup(spec, reduce)
    for name in ("left", "right"):
        if reduce is not None and getattr(reduce, name) is not None:
            raise JobFileError(
                f"reduce.{name} only applies to reduce.join; set that, or leave it out"
            )
    for name, section in spec.inputs.items():
        if section.broadcast is not None:
            raise JobFileError(
                f"inputs.{name}.broadcast only applies to reduce.join and reduce.sql; leave it out"
            )
    return None


def _check_numbers(spec: JobSpec) -> None:
    """Raise JobFileError for impossible numbers of replicas and servers."""
    replicas, servers = spec.shuffle.replicas, spec.cluster.data_servers
    if replicas < 1:
        raise JobFileError(f"shuffle.replicas must be 1 or more, not {replicas}")
    if servers is not None and not 1 <= servers <= MAX_DATA_SERVERS:
        raise JobFileError(
            f"cluster.data_servers must be from 1 to {MAX_DATA_SERVERS}, not {servers}"
        )
    if spec.cluster.metadata is None and replicas > (servers or 1):
        raise JobFileError(
            f"shuffle.replicas: {replicas} replicas need as many data servers; set "
            f"cluster.data_servers to {replicas} or more"
        )


def choose_compression(spec: JobSpec, rows_bytes: int) -> str:
    """Return the compression of blocks: that of the job, or one that suits ``rows_bytes``."""
    if spec.shuffle.compression != "auto":
        return spec.shuffle.compression
    return "lz4" if rows_bytes >= MIN_COMPRESSED_BYTES else "none"
