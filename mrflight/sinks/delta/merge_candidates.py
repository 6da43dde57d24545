"""Which files of a table a merge has to look into, and in which tasks: pure but for the log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from mrflight.errors import OutputError
from mrflight.sinks.delta.merge_writer import partition_keys
from mrflight.sinks.delta.rewrite import KeyFile, TargetFile
from mrflight.sinks.delta.table import DeltaTable
from mrflight.sinks.parts.base import PartFile
from mrflight.sinks.parts.key_bounds import (
    KeyBounds,
    Range,
    range_from_log,
    to_comparable,
    union_all,
)
from mrflight.sinks.parts.partition_values import PartitionValues, format_values, parse_value
from mrflight.storage import Location
from mrflight.storage.delta import removable_paths, stored_file

_TASKS_PER_WORKER = 4
_MIN_TASK_BYTES = 16 << 20
"""Of files: a task reads keys of the merge before it looks at one."""


class PlannedRewrite(NamedTuple):
    """What one task looks at."""

    targets: tuple[TargetFile, ...]
    sources: tuple[KeyFile, ...]


def key_files(
    table: Location, parts: Sequence[PartFile], schema: pa.Schema, keys: Sequence[str]
) -> list[KeyFile]:
    """The files of a merge's own, by the table's schema."""
    return [
        KeyFile(
            table.child(part.path).path,
            part.size_bytes,
            tuple(
                (name, parse_value(text, schema.field(name).type))
                for name, text in part.partition_values.items()
                if name in keys
            ),
            part.keys or KeyBounds(),
            part.is_key_file,
        )
        for part in parts
    ]


def target_files(table: DeltaTable, keys: Sequence[str]) -> list[TargetFile]:
    """All files of this version of the table. OutputError for one that could not be removed."""
    actions = pa.table(table.handle.get_add_actions(flatten=False))
    schema, by = table.schema, table.partition_by
    columns = _struct(actions, "partition")
    texts = [format_values(columns[name]) for name in by]
    values = [columns[name].to_pylist() for name in by]
    ranges = _ranges(actions, schema, [name for name in keys if name not in by])
    paths, sizes = actions["path"].to_pylist(), actions["size_bytes"].to_pylist()
    _check_paths(table, paths)
    found = []
    for number, (path, size) in enumerate(zip(paths, sizes, strict=True)):
        known = dict(zip(by, (column[number] for column in texts), strict=True))
        told = partition_keys(pa.schema([schema.field(name) for name in keys]), by)
        bounds = KeyBounds(
            {name: range_ for name, of in ranges.items() if (range_ := of[number]) is not None},
            frozenset([tuple(known[name] for name in told)]) if told else None,
        )
        constants = zip(by, (column[number] for column in values), strict=True)
        whole = stored_file(table.location, path).path
        found.append(TargetFile(path, whole, size, tuple(known.values()), tuple(constants), bounds))
    return found


def _check_paths(table: DeltaTable, paths: Sequence[str]) -> None:
    """OutputError for what a transaction would not remove: the table would have rows twice."""
    if strange := set(paths) - removable_paths(paths):
        raise OutputError(
            f"{table.location.url} cannot be merged into: its log calls a file {min(strange)}, as "
            "deltalake does not, so that it could not be removed; let who wrote it write it again "
            "(OPTIMIZE), or write to another table"
        )


def _ranges(
    actions: pa.Table, schema: pa.Schema, columns: Sequence[str]
) -> dict[str, list[Range | None]]:
    """Of each file the range of each column, where the log has one that can be relied on."""
    low, high = _struct(actions, "min"), _struct(actions, "max")
    found = {}
    for name in columns:
        kind = schema.field(name).type
        if name not in low or name not in high:
            continue
        lows, highs = to_comparable(low[name]), to_comparable(high[name])
        if lows is None or highs is None or to_comparable(pa.array([], kind)) is None:
            continue
        pairs = zip(lows.to_pylist(), highs.to_pylist(), strict=True)
        found[name] = [range_from_log(kind, least, greatest) for least, greatest in pairs]
    return found


def _struct(actions: pa.Table, name: str) -> Mapping[str, pa.Array]:
    """The fields of a column of structs, which may not be there."""
    if name not in actions.column_names:
        return {}
    column = actions[name].combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else None
    if column is None or not pa.types.is_struct(column.type):
        return {}
    fields = column.flatten()  # a struct that is null has null fields
    return {field.name: values for field, values in zip(column.type, fields, strict=True)}


def plan_rewrites(
    targets: Sequence[TargetFile], sources: Sequence[KeyFile], workers: int
) -> list[PlannedRewrite]:
    """Tasks for the targets that may have a key of the sources; those of one partition together."""
    by_value: dict[PartitionValues, list[KeyFile]] = defaultdict(list)
    anywhere: list[KeyFile] = []
    for source in sources:
        if source.bounds.partitions is None:
            anywhere.append(source)
        else:
            for value in source.bounds.partitions:
                by_value[value].append(source)
    joined: dict[PartitionValues, KeyBounds | None] = {}
    wanted: list[tuple[TargetFile, list[KeyFile]]] = []
    for target in sorted(targets, key=lambda each: (repr(each.values), each.path)):
        place: PartitionValues = next(iter(target.bounds.partitions or [()]))
        candidates = [*anywhere, *by_value.get(place, [])]
        if place not in joined:
            joined[place] = union_all([s.bounds for s in candidates]) if candidates else None
        bounds = joined[place]
        if bounds is not None and bounds.overlaps(target.bounds):
            wanted.append((target, candidates))
    return list(_tasks(wanted, workers))


def _tasks(
    wanted: Sequence[tuple[TargetFile, list[KeyFile]]], workers: int
) -> Iterator[PlannedRewrite]:
    total = sum(target.size_bytes for target, _ in wanted)
    most_bytes = max(total // (workers * _TASKS_PER_WORKER), _MIN_TASK_BYTES)
    group: list[TargetFile] = []
    sources: dict[str, KeyFile] = {}
    weight = 0
    for target, candidates in wanted:
        if group and weight + target.size_bytes > most_bytes:
            yield PlannedRewrite(tuple(group), tuple(sources.values()))
            group, sources, weight = [], {}, 0
        group.append(target)
        sources |= {source.path: source for source in candidates}
        weight += target.size_bytes
    if group:
        yield PlannedRewrite(tuple(group), tuple(sources.values()))
