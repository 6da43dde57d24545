"""The maps of one side of a stage, from its inputs as they were found: a pure function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import pyarrow as pa

from mrflight.compute.layout import canonical_schema
from mrflight.compute.schemas import describe_difference
from mrflight.compute.sql.map import SqlMap
from mrflight.config.functions import FunctionRef
from mrflight.config.memory import MemoryPlan
from mrflight.config.sort_key import ascending, columns_of, parse_sort_keys
from mrflight.config.spec import InputSpec, JobSpec, ReduceSection
from mrflight.errors import ColumnNotFoundError, JobFileError, SchemaMismatchError
from mrflight.planner.keys import key_of, rows_of
from mrflight.sources.base import Source, Split
from mrflight.tasks.mapper import RowMap, mapped_schema
from mrflight.tasks.partitioner import PartitionerSpec
from mrflight.tasks.reducer import ReduceSpec
from mrflight.tasks.tasks import MapTask, SampleTask

SAMPLE_PIECES = 64
SAMPLE_ROWS_PER_PARTITION = 100
"""Of all samples together: boundaries are then within about ten per cent of even."""

_MADE_SAMPLE_PIECES = 4
"""Of a stage's result, each of which is made for it. Partitions by a hash are samples already."""


class ShuffleInput(msgspec.Struct, frozen=True):
    """The inputs whose rows are one table, which goes through one shuffle."""

    name: str
    """Of the table: the first input's."""
    map_tasks: tuple[MapTask, ...]
    sample_tasks: tuple[SampleTask, ...]
    """Only for the range partitioner."""
    schema: pa.Schema | None
    """Of the shuffled rows; None where a function will say it."""
    partitioners: Mapping[str, PartitionerSpec]
    """Of its inputs by their names."""
    row_maps: Mapping[str, RowMap]
    """Of those that have one."""
    partitions: int
    """Those of the stage, or one where it is broadcast."""


def plan_side(
    spec: JobSpec,
    *,
    sources: Sequence[Source],
    folder: str,
    maps: Mapping[str, RowMap | None],
    partitions: int,
    reduce_spec: ReduceSpec,
    is_met: bool,
    compression: str,
    memory: MemoryPlan,
    split_bytes: int,
    is_broadcast: bool,
) -> ShuffleInput:
    """The maps of the inputs that are one table.

    ``is_met``: it meets others before it is reduced; ``is_broadcast``: where they are read.
    """
    map_tasks: list[MapTask] = []
    sample_tasks: list[SampleTask] = []
    known: list[pa.Schema] = []
    partitioners: dict[str, PartitionerSpec] = {}
    row_maps: dict[str, RowMap] = {}
    begun = ReduceSpec() if is_met else reduce_spec
    _check_inputs_agree(spec, sources)
    for source in sources:
        section = spec.inputs[source.name]
        row_map = maps[source.name]
        schema = mapped_schema(source.reader.schema, row_map)
        known += [] if schema is None else [canonical_schema(schema)]
        if row_map is not None:
            row_maps[source.name] = row_map
        partitioner = PartitionerSpec("one", (), 1)
        if not is_broadcast and not section.broadcast:
            partitioner = _plan_partitioner(spec, source.name, section, partitions, folder)
        partitioners[source.name] = partitioner
        share = memory.halved() if source.is_made else memory
        if schema is not None:  # names are checked now
            rows = rows_of(source.name, section)
            orders = spec.reduce is not None and spec.reduce.orders
            if not orders and (section.key or not reduce_spec.unique):  # or others name it better
                _check_key(schema, f"inputs.{source.name}.key: {rows}", partitioner)
            begun.check(schema, rows)
        for split in _cut(source, split_bytes):
            map_tasks.append(
                MapTask(
                    source.name,
                    len(map_tasks),
                    source.reader,
                    split,
                    row_map,
                    partitioner,
                    begun,
                    compression,
                    share.writer,
                    share.combiner,
                )
            )
        if partitioner.kind == "range" and source.splits:
            sample_tasks += _plan_samples(source, row_map, partitioner)
    return ShuffleInput(
        sources[0].name,
        tuple(map_tasks),
        tuple(sample_tasks),
        known[0] if known else None,
        partitioners,
        row_maps,
        1 if is_broadcast or spec.inputs[sources[0].name].broadcast else partitions,
    )


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
    plain = [
        source
        for source in sources
        if spec.inputs[source.name].map is None
        and spec.inputs[source.name].sql is None
        and source.reader.schema is not None
    ]
    for other in plain[1:]:
        first = plain[0]
        difference = describe_difference(
            canonical_schema(first.reader.schema), canonical_schema(other.reader.schema)
        )
        if difference:
            raise SchemaMismatchError(
                f"inputs.{other.name} does not agree with inputs.{first.name}, and their rows meet "
                f"in one shuffle: {difference}; set types, select columns, or map one of them"
            )


def plan_map(name: str, section: InputSpec, folder: str) -> RowMap | None:
    """What maps the rows of an input; JobFileError where it is no name of a function."""
    if section.sql is not None:
        return SqlMap(section.sql, section.sql_table or name, f"inputs.{name}.sql")
    if section.map is None:
        return None
    return FunctionRef.parse(section.map, f"inputs.{name}.map", folder)


def _plan_partitioner(
    spec: JobSpec, name: str, section: InputSpec, partitions: int, folder: str
) -> PartitionerSpec:
    if spec.reduce is not None and spec.reduce.orders:
        return _plan_order(spec.reduce, partitions)
    kind, key = spec.shuffle.partitioner, key_of(spec, section)
    if spec.reduce is not None and spec.reduce.is_total:
        _check_total(name, kind, key)
        return PartitionerSpec("one", (), 1)
    group_by = spec.reduce.group_by if spec.reduce else []
    if spec.reduce is not None and spec.reduce.sql is not None and partitions == 1:
        return PartitionerSpec("one", (), 1)
    if kind == "hash" and spec.shuffle.partitions == 1 and not key and spec.reduce is None:
        return PartitionerSpec("one", (), 1)  # wherever rows would go by a key
    is_whole = spec.reduce is not None and spec.reduce.distinct and kind == "hash"
    if kind in ("hash", "range") and not key and not is_whole:
        wanted = "without a key there is shuffle.partitioner = 'round_robin'"
        if spec.reduce is not None:
            wanted = "what is reduced are all rows of a key; say which, key = [...]"
        raise JobFileError(
            f"inputs.{name}.key: the {kind} partitioner needs the columns to partition by; {wanted}"
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


def _check_total(name: str, kind: str, key: list[str]) -> None:
    """Raise JobFileError for what would bring rows apart of which one is made."""
    all_rows = "without reduce.group_by one row is made of all rows"
    if kind != "hash":
        raise JobFileError(
            f"shuffle.partitioner: {kind} is for several partitions, and {all_rows}; leave it out, "
            "or write group_by = [...]"
        )
    if key:
        raise JobFileError(
            f"inputs.{name}.key: {key} tells which rows belong together, and {all_rows}; write "
            f"group_by = {key}, or leave the key out"
        )


def _plan_order(reduce: ReduceSection, partitions: int) -> PartitionerSpec:
    """Where rows go that are to be in order."""
    sort_keys = parse_sort_keys(reduce.sort_by, "reduce.sort_by")
    if partitions == 1:
        return PartitionerSpec("one", (), 1)
    return PartitionerSpec("range", tuple(columns_of(sort_keys)), partitions, sort_keys=sort_keys)


def _plan_samples(
    source: Source, row_map: RowMap | None, partitioner: PartitionerSpec
) -> list[SampleTask]:
    """Small pieces spread evenly over the input."""
    most = _MADE_SAMPLE_PIECES if source.is_made else SAMPLE_PIECES
    each = max(1, -(-SAMPLE_PIECES // len(source.splits)))
    pieces = [piece for split in source.splits for piece in source.reader.pieces(split, each)]
    picked = pieces[:: max(1, len(pieces) // most)]
    rows = max(100, SAMPLE_ROWS_PER_PARTITION * partitioner.partitions // len(picked))
    return [
        SampleTask(source.reader, piece, row_map, partitioner.sort_keys, rows) for piece in picked
    ]
