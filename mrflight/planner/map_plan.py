"""Plans the map tasks of one shuffle from the inputs that were found: a pure function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from mrflight.compute.layout import canonical_schema
from mrflight.compute.schemas import describe_difference
from mrflight.config.functions import FunctionRef
from mrflight.config.input_spec import InputSpec
from mrflight.config.memory import MemoryPlan
from mrflight.config.reduce_section import ReduceSection
from mrflight.config.sort_key import ascending, columns_of, parse_sort_keys
from mrflight.config.spec import JobSpec
from mrflight.errors import ColumnNotFoundError, JobFileError, SchemaMismatchError
from mrflight.planner.column_pruning import keep_columns
from mrflight.planner.keys import key_of, rows_of
from mrflight.planner.stages import IN_ORDER
from mrflight.sources.base import Source, Split, pack_splits
from mrflight.sources.packing import pack
from mrflight.tasks.broadcast_join import StreamReader
from mrflight.tasks.map_task import MapTask, WriteLimits
from mrflight.tasks.mapper import RowMap, mapped_schema
from mrflight.tasks.partitioner import PartitionerSpec
from mrflight.tasks.reducer import ReduceSpec
from mrflight.tasks.runtime_filter import RuntimeFilter
from mrflight.tasks.sample_task import SampleTask

SAMPLE_SPLITS = 64
SAMPLE_ROWS_PER_PARTITION = 100
"""Rows of all samples together. Boundaries are then within about ten per cent of even."""

_INTERMEDIATE_SAMPLE_SPLITS = 4
"""Each sample of a stage's result is computed for it. Few suffice, because partitions by a hash are
random samples already."""

_STREAM_SAMPLE_SPLITS = 16
"""What a stage makes of a split of files comes as the files are read, and these may be sorted."""


class StageContext(msgspec.Struct, frozen=True):
    """The decisions about a stage that its map tasks follow from."""

    spec: JobSpec
    folder: str
    memory: MemoryPlan
    row_maps: Mapping[str, RowMap | None]
    """The map of each input."""
    partitions: int
    compression: str
    split_bytes: int
    """Larger splits are cut."""
    pack_weight: int
    """Smaller splits are packed up to this `weight`."""
    reduce_spec: ReduceSpec
    is_joined: bool
    """True if the tables are joined or queried before they are reduced."""
    is_broadcast: bool
    """True if all tables are broadcast to a streamed side."""
    partitioners: Mapping[str, PartitionerSpec] = msgspec.field(default_factory=dict)
    """The partitioners of inputs that the spec does not decide about."""
    runtime_filters: Mapping[str, RuntimeFilter] = msgspec.field(default_factory=dict)
    """The runtime filters of the maps of inputs."""


class ShuffleInput(msgspec.Struct, frozen=True):
    """The inputs whose rows form one table, which goes through one shuffle."""

    name: str
    """The name of the table, which is that of its first input."""
    map_tasks: tuple[MapTask, ...]
    sample_tasks: tuple[SampleTask, ...]
    """Only for the range partitioner."""
    schema: pa.Schema | None
    """The schema of the shuffled rows; None if only a user's function determines it."""
    partitioners: Mapping[str, PartitionerSpec]
    """The partitioner of each input."""
    row_maps: Mapping[str, RowMap]
    """The map of each input that is mapped."""
    partitions: int
    """The number of partitions: that of the stage, or one if the table is broadcast."""


def plan_shuffle_input(stage: StageContext, sources: Sequence[Source]) -> ShuffleInput:
    """Plan the map tasks of the inputs that form one table."""
    spec = stage.spec
    map_tasks: list[MapTask] = []
    sample_tasks: list[SampleTask] = []
    partitioners: dict[str, PartitionerSpec] = {}
    schemas: list[pa.Schema] = []
    _check_inputs_agree(spec, sources)
    for source in sources:
        section = spec.inputs[source.name]
        row_map = stage.row_maps[source.name]
        partitioner = PartitionerSpec("one", (), 1)
        if not stage.is_broadcast and not section.broadcast:
            known = stage.partitioners.get(source.name)
            partitioner = known or _plan_partitioner(stage, source.name, section)
        partitioners[source.name] = partitioner
        if (schema := mapped_schema(source.reader.schema, row_map)) is not None:
            _check_columns(stage, source.name, schema, partitioner)
            schemas.append(canonical_schema(schema))
        map_tasks += _plan_maps(stage, source, partitioner, len(map_tasks))
        if partitioner.kind == "range" and source.splits:
            sample_tasks += _plan_samples(source, row_map, partitioner)
    row_maps = {source.name: stage.row_maps[source.name] for source in sources}
    return ShuffleInput(
        sources[0].name,
        tuple(_with_map_count(map_tasks) if spec.shuffle.partitioner == IN_ORDER else map_tasks),
        tuple(sample_tasks),
        schemas[0] if schemas else None,
        partitioners,
        {name: row_map for name, row_map in row_maps.items() if row_map is not None},
        1 if stage.is_broadcast or spec.inputs[sources[0].name].broadcast else stage.partitions,
    )


def _map_side_spec(stage: StageContext) -> ReduceSpec:
    """Return the reduce that maps may start: an empty one if the tables are joined first."""
    return ReduceSpec() if stage.is_joined else stage.reduce_spec


def _check_columns(
    stage: StageContext, name: str, schema: pa.Schema, partitioner: PartitionerSpec
) -> None:
    """Raise JobError if the key, or a column of the reduce, is missing or has a wrong type."""
    spec, section = stage.spec, stage.spec.inputs[name]
    rows = rows_of(name, section)
    orders = spec.reduce is not None and spec.reduce.orders
    # Otherwise sort_by or output.keys name the column, and their own checks say so.
    if not orders and (section.key or not stage.reduce_spec.unique):
        key = f"inputs.{name}.key" if section.key else "reduce.group_by"
        _check_key(schema, f"{key}: {rows}", partitioner)
    _map_side_spec(stage).check(schema, rows)


def _plan_maps(
    stage: StageContext, source: Source, partitioner: PartitionerSpec, first_id: int
) -> Iterator[MapTask]:
    memory = stage.memory.halved() if source.is_intermediate else stage.memory
    map_side = _map_side_spec(stage)  # one object for all maps, because it is sent to a worker once
    splits = list(_split_maps(stage, source))
    runtime_filter = stage.runtime_filters.get(source.name)
    if runtime_filter is not None:
        runtime_filter = runtime_filter.noted_by(len(splits))
    for map_id, split in enumerate(splits, first_id):
        yield MapTask(
            source.name,
            map_id,
            source.reader,
            split,
            stage.row_maps[source.name],
            partitioner,
            map_side,
            WriteLimits(stage.compression, memory.writer, memory.combiner),
            source.bad_rows,
            runtime_filter,
        )


def _with_map_count(tasks: Sequence[MapTask]) -> list[MapTask]:
    """Return the tasks, whose partitioners place a map by its position among all maps."""
    planned = {id(task.partitioner): task.partitioner for task in tasks}
    counted = {key: replace(each, maps=len(tasks)) for key, each in planned.items()}
    return [replace(task, partitioner=counted[id(task.partitioner)]) for task in tasks]


def _check_key(schema: pa.Schema, rows: str, partitioner: PartitionerSpec) -> None:
    for column in partitioner.key:
        if partitioner.kind in ("hash", "range") and column not in schema.names:
            raise ColumnNotFoundError.among(column, schema.names, rows)
    partitioner.check(schema, rows)


def _split_maps(stage: StageContext, source: Source) -> Iterator[Split]:
    """Yield what each map reads: large splits are cut, and small ones are packed."""
    cut = _cut(source, stage.split_bytes)
    return pack(cut, stage.pack_weight) if source.reader.reads_packs else cut


def _cut(source: Source, max_bytes: int) -> Iterator[Split]:
    """Yield the splits of a source, cut again if one is larger than ``max_bytes``.

    Neighbours are joined before, so that all are about the same size. A file of 220 MiB, of which
    each split of 64 MiB was cut by itself, gave two workers 11 maps: one worker waited for a tenth
    of the stage.
    """
    are_small = all(split.size_bytes <= max_bytes for split in source.splits)
    for split in source.splits if are_small else _joined(source.splits):
        yield from source.reader.divide(split, -(-split.size_bytes // max_bytes))


def _joined(splits: Sequence[Split]) -> list[Split]:
    """Return the splits, with those that follow one another in a file as one.

    Splits are cut by the number of their units, so units of other sizes stay apart.
    """
    joined: list[Split] = []
    for split in splits:
        if joined and joined[-1].is_followed_by(split) and _have_like_units(joined[-1], split):
            before = joined.pop()
            size_bytes = before.size_bytes + split.size_bytes
            joined.append(replace(before, stop=split.stop, size_bytes=size_bytes))
        else:
            joined.append(split)
    return joined


def _have_like_units(one: Split, other: Split) -> bool:
    """Return whether the units of one split are at most twice as large as those of the other."""
    small, large = sorted(each.size_bytes / (each.stop - each.start) for each in (one, other))
    return large <= 2 * small


def _check_inputs_agree(spec: JobSpec, sources: Sequence[Source]) -> None:
    """Raise SchemaMismatchError if inputs that are not mapped have different columns."""
    plain = [
        source
        for source in sources
        if not spec.inputs[source.name].is_mapped and source.reader.schema is not None
    ]
    for other in plain[1:]:
        first = plain[0]
        difference = describe_difference(
            canonical_schema(first.reader.schema), canonical_schema(other.reader.schema)
        )
        if difference:
            raise SchemaMismatchError(
                f"inputs.{other.name} must have the same columns as inputs.{first.name}, because "
                f"their rows go into one shuffle: {difference}; set types, select columns, or map "
                "one of them"
            )


def _plan_partitioner(stage: StageContext, name: str, section: InputSpec) -> PartitionerSpec:
    """Decide where the rows of an input go; JobFileError if the sections contradict each other."""
    spec, partitions = stage.spec, stage.partitions
    reduce, kind, key = spec.reduce, spec.shuffle.partitioner, key_of(spec, section)
    if reduce is not None and reduce.orders:
        return _plan_order(reduce, partitions)
    if reduce is not None and reduce.is_total:
        _check_total(name, kind, key)
        return PartitionerSpec("one", (), 1)
    if reduce is not None and reduce.sql is not None and partitions == 1:
        return PartitionerSpec("one", (), 1)
    is_one = spec.shuffle.partitions == 1 and reduce is None
    if is_one and kind in ("hash", "round_robin") and not key:
        return PartitionerSpec("one", (), 1)  # the same for any key
    _check_key_columns(spec, name, kind, key)
    if kind in ("hash", "range", "round_robin", IN_ORDER):
        sort_keys = ascending(key) if kind == "range" else ()
        return PartitionerSpec(kind, tuple(key), partitions, sort_keys=sort_keys)
    if ":" not in kind:
        raise JobFileError(
            "shuffle.partitioner must be hash, range, round_robin, in_order or module:function, "
            f"not {kind!r}"
        )
    function = FunctionRef.parse(kind, "shuffle.partitioner", stage.folder)
    return PartitionerSpec("function", tuple(key), partitions, function)


def _check_key_columns(spec: JobSpec, name: str, kind: str, key: list[str]) -> None:
    """Raise JobFileError if the key does not suit the partitioner or the reduce."""
    group_by = spec.reduce.group_by if spec.reduce else []
    is_whole_row = spec.reduce is not None and spec.reduce.distinct and kind == "hash"
    if kind in ("hash", "range") and not key and not is_whole_row:
        advice = "set key = [...], or leave shuffle.partitioner out"
        if spec.reduce is not None:
            advice = "set key = [...], because a reduce needs all rows of a key together"
        raise JobFileError(f"inputs.{name}.key: the {kind} partitioner needs key columns; {advice}")
    if len(set(key)) < len(key):
        raise JobFileError(f"inputs.{name}.key: {key} names a column twice")
    if kind in ("round_robin", IN_ORDER) and spec.reduce:
        raise JobFileError(
            f"shuffle.partitioner: {kind} does not bring equal keys together, as [reduce] "
            "needs; use hash, or leave out [reduce]"
        )
    if kind in ("hash", "range") and group_by and not set(key) <= set(group_by):
        raise JobFileError(
            f"inputs.{name}.key: {key} must be among reduce.group_by, {group_by}; otherwise rows "
            "of one group go to several partitions"
        )


def _check_total(name: str, kind: str, key: list[str]) -> None:
    """Raise JobFileError for settings that would distribute rows of which one row is made."""
    one_row = "without reduce.group_by one row is made of all rows"
    if kind != "hash":
        raise JobFileError(
            f"shuffle.partitioner: {kind} is for several partitions, but {one_row}; leave it out, "
            "or set reduce.group_by = [...]"
        )
    if key:
        raise JobFileError(
            f"inputs.{name}.key: {key} is a key, but {one_row}; set reduce.group_by = {key}, or "
            "leave the key out"
        )


def _plan_order(reduce: ReduceSection, partitions: int) -> PartitionerSpec:
    """Distribute rows by ranges of the columns that they are sorted by."""
    sort_keys = parse_sort_keys(reduce.sort_by, "reduce.sort_by")
    if partitions == 1:
        return PartitionerSpec("one", (), 1)
    return PartitionerSpec("range", tuple(columns_of(sort_keys)), partitions, sort_keys=sort_keys)


def _plan_samples(
    source: Source, row_map: RowMap | None, partitioner: PartitionerSpec
) -> list[SampleTask]:
    """Plan samples of small splits that are spread evenly over the input."""
    count = SAMPLE_SPLITS
    if source.is_intermediate:
        is_stream = isinstance(source.reader, StreamReader)
        count = _STREAM_SAMPLE_SPLITS if is_stream else _INTERMEDIATE_SAMPLE_SPLITS
    each = max(1, -(-SAMPLE_SPLITS // len(source.splits)))
    pieces = [piece for split in source.splits for piece in source.reader.divide(split, each)]
    step = max(1, len(pieces) // count)
    picked = pieces[::step]
    if source.reader.reads_packs:  # one of many small files has too few rows
        picked = [pack_splits(pieces[at : at + step]) for at in range(0, len(pieces), step)]
    rows = max(100, SAMPLE_ROWS_PER_PARTITION * partitioner.partitions // len(picked))
    keys, key_map = keep_columns(source, row_map, set(columns_of(partitioner.sort_keys)))
    return [
        SampleTask(keys.reader, piece, key_map, partitioner.sort_keys, rows) for piece in picked
    ]
