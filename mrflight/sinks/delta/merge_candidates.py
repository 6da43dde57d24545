"""Plans a merge: which files of the table may have its keys, and which task reads which of them.

This reads the table's log, and nothing else.
"""

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
"""The minimum size of the files of one task, which reads keys of the merge before them."""


class PlannedRewrite(NamedTuple):
    """The files that one task reads."""

    targets: tuple[TargetFile, ...]
    """Files of the table."""
    sources: tuple[KeyFile, ...]
    """The files of the merge that may have keys of the targets."""


def to_key_files(
    table: Location, parts: Sequence[PartFile], schema: pa.Schema, keys: Sequence[str]
) -> list[KeyFile]:
    """Return the part files that a merge wrote, with keys of the table's types."""
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


def list_target_files(table: DeltaTable, keys: Sequence[str]) -> list[TargetFile]:
    """Return the files of this version; raise OutputError for one that cannot be removed."""
    actions = pa.table(table.handle.get_add_actions(flatten=False))
    schema, by = table.schema, table.partition_by
    columns = _struct(actions, "partition")
    texts = [format_values(columns[name]) for name in by]
    values = [columns[name].to_pylist() for name in by]
    ranges = _ranges(actions, schema, [name for name in keys if name not in by])
    paths, sizes = actions["path"].to_pylist(), actions["size_bytes"].to_pylist()
    _check_paths(table, paths)
    by_keys = partition_keys(pa.schema([schema.field(name) for name in keys]), by)
    found = []
    for number, (path, size) in enumerate(zip(paths, sizes, strict=True)):
        known = dict(zip(by, (column[number] for column in texts), strict=True))
        bounds = KeyBounds(
            {name: each for name, all_ in ranges.items() if (each := all_[number]) is not None},
            frozenset([tuple(known[name] for name in by_keys)]) if by_keys else None,
        )
        constants = zip(by, (column[number] for column in values), strict=True)
        stored = stored_file(table.location, path).path
        target = TargetFile(path, stored, size, tuple(known.values()), tuple(constants), bounds)
        found.append(target)
    return found


def _check_paths(table: DeltaTable, paths: Sequence[str]) -> None:
    """Raise OutputError for files that a transaction cannot remove; their rows would stay."""
    if foreign := set(paths) - removable_paths(paths):
        raise OutputError(
            f"{table.location.url} cannot be merged into: its log encodes the path {min(foreign)} "
            "differently than deltalake, which could not remove the file; rewrite it with the "
            "program that wrote it (OPTIMIZE), or write to another table"
        )


def _ranges(
    actions: pa.Table, schema: pa.Schema, columns: Sequence[str]
) -> dict[str, list[Range | None]]:
    """Return the range of each column in each file, or None if the log has no reliable one."""
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
    """Return the fields of a column of structs; none if there is no such column."""
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
    """Plan tasks for the targets that may have a key of the sources, grouped by partition."""
    by_value: dict[PartitionValues, list[KeyFile]] = defaultdict(list)
    anywhere: list[KeyFile] = []
    for source in sources:
        if source.bounds.partitions is None:
            anywhere.append(source)
        else:
            for value in source.bounds.partitions:
                by_value[value].append(source)
    bounds_by_value: dict[PartitionValues, KeyBounds | None] = {}
    overlapping: list[tuple[TargetFile, list[KeyFile]]] = []
    for target in sorted(targets, key=lambda each: (repr(each.values), each.path)):
        partition: PartitionValues = next(iter(target.bounds.partitions or [()]))
        candidates = [*anywhere, *by_value.get(partition, [])]
        if partition not in bounds_by_value:
            bounds = union_all([each.bounds for each in candidates]) if candidates else None
            bounds_by_value[partition] = bounds
        bounds = bounds_by_value[partition]
        if bounds is not None and bounds.overlaps(target.bounds):
            overlapping.append((target, candidates))
    return list(_group(overlapping, workers))


def _group(
    overlapping: Sequence[tuple[TargetFile, list[KeyFile]]], workers: int
) -> Iterator[PlannedRewrite]:
    total = sum(target.size_bytes for target, _ in overlapping)
    max_bytes = max(total // (workers * _TASKS_PER_WORKER), _MIN_TASK_BYTES)
    group: list[TargetFile] = []
    sources: dict[str, KeyFile] = {}
    group_bytes = 0
    for target, candidates in overlapping:
        if group and group_bytes + target.size_bytes > max_bytes:
            yield PlannedRewrite(tuple(group), tuple(sources.values()))
            group, sources, group_bytes = [], {}, 0
        group.append(target)
        sources |= {source.path: source for source in candidates}
        group_bytes += target.size_bytes
    if group:
        yield PlannedRewrite(tuple(group), tuple(sources.values()))
