"""From a job's spec and its inputs as they were found to tasks: a pure function."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from mrflight.aggregates import parse_aggregate
from mrflight.errors import ColumnNotFoundError, JobFileError, SchemaMismatchError
from mrflight.functions import FunctionRef
from mrflight.ids import MAX_PARTITIONS
from mrflight.meeting_plan import plan_meeting
from mrflight.memory import MemoryPlan
from mrflight.merge_plan import plan_merge
from mrflight.schemas import describe_difference
from mrflight.shuffle.layout import plain_schema
from mrflight.sort_key import SortKey, ascending
from mrflight.sources.base import Source, Split
from mrflight.spec import InputSpec, JobSpec
from mrflight.workers.partitioning import PartitionerSpec
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

SAMPLE_PIECES = 64
SAMPLE_ROWS_PER_PARTITION = 100
"""Of all samples together: boundaries are then within about ten per cent of even."""


_LEAST_COMPRESSED_BYTES = 256 * 2**20
"""Of rows in memory where ``compression`` is auto. Of lineitem's 1 GiB of rows a job took 0.7 to
1.0 of the time with lz4, and 0.6 of the memory; of 10 GiB 0.8 of the time, once. At 0.3 GiB the
time was the same within the noise (6 pairs), and the memory 0.7."""

MAX_DATA_SERVERS = 64
"""Of an embedded cluster: each is a process on this machine."""


@dataclass(frozen=True)
class Side:
    """The inputs whose rows are one table, which goes through one shuffle."""

    name: str
    """Of the table: the first input's."""
    map_tasks: tuple[MapTask, ...]
    sample_tasks: tuple[SampleTask, ...]
    """Only for the range partitioner."""
    schema: pa.Schema | None
    """Of the shuffled rows; None where a function will say it."""


@dataclass(frozen=True)
class StagePlan:
    """Everything that is decided of a stage before its first task runs."""

    partitions: int
    sides: tuple[Side, ...]
    """One, unless tables meet in the reduces."""
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
        named = [self.reduction.function]
        for task in self.map_tasks:
            named += [task.function, task.partitioner.function]
        return {function for function in named if function is not None}

    @property
    def result_schema(self) -> pa.Schema | None:
        """None where a function will say it."""
        schemas = {side.name: side.schema for side in self.sides if side.schema is not None}
        if len(schemas) < len(self.sides):
            return None
        met = self.meeting.check(schemas) if self.meeting else next(iter(schemas.values()))
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
    rows_bytes = sum(source.rows_bytes for source in sources)
    partitions = count_partitions(spec, rows_bytes, workers, memory)
    keys = {name: _key(spec, section) for name, section in spec.inputs.items()}
    unique = plan_merge(spec, keys, partitions)
    reduction = replace(plan_reduction(spec, folder), unique=unique)
    meeting = plan_meeting(spec)
    total = sum(split.size_bytes for source in sources for split in source.splits)
    side = partial(
        _plan_side,
        spec,
        folder=folder,
        partitions=partitions,
        reduction=reduction,
        is_met=meeting is not None,
        compression=choose_compression(spec, rows_bytes),
        memory=memory,
        split_bytes=max(total // (workers * _MAPS_PER_WORKER), _LEAST_SPLIT_BYTES),
    )
    tables = [[source] for source in sources] if meeting else [list(sources)]
    sides = tuple(side(sources=of_one) for of_one in tables)
    resizes = spec.shuffle.partitions == "auto" and reduction.function is None
    return StagePlan(
        partitions, sides, meeting, reduction, choose_compression(spec, rows_bytes), resizes
    )


def _plan_side(
    spec: JobSpec,
    *,
    sources: Sequence[Source],
    folder: str,
    partitions: int,
    reduction: Reduction,
    is_met: bool,
    compression: str,
    memory: MemoryPlan,
    split_bytes: int,
) -> Side:
    """The maps of the inputs that are one table.

    ``is_met``: it meets others before it is reduced.
    """
    map_tasks: list[MapTask] = []
    sample_tasks: list[SampleTask] = []
    begun = Reduction() if is_met else reduction
    _check_inputs_agree(spec, sources)
    for source in sources:
        section = spec.inputs[source.name]
        function = _map_function(source.name, section, folder)
        partitioner = _plan_partitioner(spec, source.name, section, partitions, folder)
        share = memory.halved() if source.is_made else memory
        if function is None and source.reader.schema is not None:  # names are checked now
            rows = _rows_of(source.name, section)
            if section.key or not reduction.unique:  # or the merge's, which it names better
                _check_key(source.reader.schema, f"inputs.{source.name}.key: {rows}", partitioner)
            begun.check(source.reader.schema, rows)
        for split in _cut(source, split_bytes):
            map_tasks.append(
                MapTask(
                    source.name,
                    len(map_tasks),
                    source.reader,
                    split,
                    function,
                    partitioner,
                    begun,
                    compression,
                    share.writer,
                    share.combiner,
                )
            )
        if partitioner.kind == "range" and source.splits:
            sample_tasks += _plan_samples(source, function, partitioner)
    known = [
        plain_schema(source.reader.schema)
        for source in sources
        if spec.inputs[source.name].map is None and source.reader.schema is not None
    ]
    schema = known[0] if known else None
    return Side(sources[0].name, tuple(map_tasks), tuple(sample_tasks), schema)


def _rows_of(name: str, section: InputSpec) -> str:
    """What messages call the rows of an input without a map: by the key that may have to change."""
    return f"inputs.{name}" if section.columns is None else f"what inputs.{name}.columns reads"


def _check_key(schema: pa.Schema, rows: str, partitioner: PartitionerSpec) -> None:
    for column in partitioner.key:
        if partitioner.kind in ("hash", "range") and column not in schema.names:
            raise ColumnNotFoundError.among(column, schema.names, rows)
    partitioner.check(schema)


def _cut(source: Source, most_bytes: int) -> Iterator[Split]:
    """The source's splits, those cut that are larger and can be."""
    for split in source.splits:
        yield from source.reader.pieces(split, -(-split.size_bytes // most_bytes))


def _check_inputs_agree(spec: JobSpec, sources: Sequence[Source]) -> None:
    """Raise SchemaMismatchError where inputs whose rows are not mapped differ in their columns."""
    plain = [source for source in sources if spec.inputs[source.name].map is None]
    plain = [source for source in plain if source.reader.schema is not None]
    for other in plain[1:]:
        first = plain[0]
        difference = describe_difference(
            plain_schema(first.reader.schema), plain_schema(other.reader.schema)
        )
        if difference:
            raise SchemaMismatchError(
                f"inputs.{other.name} does not agree with inputs.{first.name}, and their rows meet "
                f"in one shuffle: {difference}; set types, select columns, or map one of them"
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


def plan_reduction(spec: JobSpec, folder: str) -> Reduction:
    """What is made of each partition."""
    section = spec.reduce
    sort_by = _sort_key(spec)
    if section is None:
        return Reduction(sort_by=sort_by)
    if section.function and (section.group_by or section.aggregate):
        raise JobFileError("reduce.function: takes the place of group_by and aggregate; keep one")
    if section.aggregate and not section.group_by:
        raise JobFileError("reduce.group_by: an aggregate needs the columns to group by")
    if section.function:
        function = FunctionRef.parse(section.function, "reduce.function", folder)
        return Reduction(function=function, key=_common_key(spec))
    aggregates = tuple(parse_aggregate(name, text) for name, text in section.aggregate.items())
    if len(set(section.group_by)) < len(section.group_by):
        raise JobFileError(f"reduce.group_by: {section.group_by} names a column twice")
    if twice := {aggregate.name for aggregate in aggregates} & set(section.group_by):
        raise JobFileError(
            f"reduce.aggregate.{min(twice)}: is the name of a group_by column, too, which the "
            "result has anyway; give the aggregate another name"
        )
    combines = spec.shuffle.partitioner in ("hash", "range")  # others may look at any column
    return Reduction(tuple(section.group_by), aggregates, sort_by=sort_by, combines=combines)


def _common_key(spec: JobSpec) -> tuple[str, ...]:
    """The columns by whose hash all inputs are partitioned; none where there are no such."""
    keys = {tuple(_key(spec, section)) for section in spec.inputs.values()}
    return keys.pop() if spec.shuffle.partitioner == "hash" and len(keys) == 1 else ()


def _sort_key(spec: JobSpec) -> tuple[SortKey, ...]:
    """Ranges are sorted inside as well, so that the parts in their order are one sorted table."""
    if spec.shuffle.partitioner != "range":
        return ()
    section = next(iter(spec.inputs.values()))
    return ascending(_key(spec, section))


def _map_function(name: str, section: InputSpec, folder: str) -> FunctionRef | None:
    if section.map is None:
        return None
    return FunctionRef.parse(section.map, f"inputs.{name}.map", folder)


def _key(spec: JobSpec, section: InputSpec) -> list[str]:
    """The key columns of an input: the groups' or a merge's where nothing else is said."""
    return section.key or (spec.reduce.group_by if spec.reduce else []) or spec.output.keys


def _plan_partitioner(
    spec: JobSpec, name: str, section: InputSpec, partitions: int, folder: str
) -> PartitionerSpec:
    kind, key = spec.shuffle.partitioner, _key(spec, section)
    group_by = spec.reduce.group_by if spec.reduce else []
    if kind in ("hash", "range") and not key:
        raise JobFileError(
            f"inputs.{name}.key: the {kind} partitioner needs the columns to partition by; "
            "without a key there is shuffle.partitioner = 'round_robin'"
        )
    if len(set(key)) < len(key):
        raise JobFileError(f"inputs.{name}.key: {key} names a column twice")
    if kind == "round_robin" and spec.reduce:
        raise JobFileError(
            "shuffle.partitioner: round_robin does not bring equal keys together, so there is "
            "nothing to reduce; take hash, or leave out [reduce]"
        )
    if kind in ("hash", "range") and group_by and not set(key) <= set(group_by):
        raise JobFileError(
            f"inputs.{name}.key: {key} must be among reduce.group_by, {group_by}, or rows of one "
            "group land in several partitions"
        )
    if kind in ("hash", "range", "round_robin"):
        sort_keys = ascending(key) if kind == "range" else ()
        return PartitionerSpec(kind, tuple(key), partitions, sort_keys=sort_keys)
    if ":" not in kind:
        raise JobFileError(
            f"shuffle.partitioner: {kind!r} is none of hash, range, round_robin or module:function"
        )
    function = FunctionRef.parse(kind, "shuffle.partitioner", folder)
    return PartitionerSpec("function", tuple(key), partitions, function)


def _plan_samples(
    source: Source, function: FunctionRef | None, partitioner: PartitionerSpec
) -> list[SampleTask]:
    """Small pieces spread evenly over the input."""
    each = max(1, -(-SAMPLE_PIECES // len(source.splits)))
    pieces = [piece for split in source.splits for piece in source.reader.pieces(split, each)]
    picked = pieces[:: max(1, len(pieces) // SAMPLE_PIECES)]
    rows = max(100, SAMPLE_ROWS_PER_PARTITION * partitioner.partitions // len(picked))
    return [
        SampleTask(source.reader, piece, function, partitioner.sort_keys, rows) for piece in picked
    ]
