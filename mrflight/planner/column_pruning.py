"""Leaves out columns of an input that neither its maps nor the reduce read."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from mrflight.compute.sql.map import SqlMap
from mrflight.config.aggregates import parse_aggregate
from mrflight.config.functions import FunctionRef
from mrflight.config.input_spec import InputSpec
from mrflight.config.spec import JobSpec
from mrflight.errors import JobError
from mrflight.sources.base import Source
from mrflight.tasks.mapper import RowMap, chained, mapped_schema, maps_of
from mrflight.tasks.operators.partial_columns import needed_columns


def prune_columns(
    spec: JobSpec, source: Source, row_map: RowMap | None
) -> tuple[Source, RowMap | None]:
    """Return the input and its map without columns that the job does not use."""
    return keep_columns(source, row_map, _grouped_columns(spec, spec.inputs[source.name]))


def keep_columns(
    source: Source, row_map: RowMap | None, needed: set[str] | None
) -> tuple[Source, RowMap | None]:
    """Return the input and its map without other columns, as far as these can leave them out.

    ``needed`` is None for all columns. Returns them unchanged if columns are not known, or one is
    missing: the planner reports the mistake.
    """
    schema = source.reader.schema
    if schema is None:
        return source, row_map
    try:
        pruned, needed = _prune_maps(schema, row_map, needed)
    except JobError:
        return source, row_map
    if needed is None or not needed <= set(schema.names):
        return source, pruned
    return source.select(_in_order(needed, schema)), pruned


def _prune_maps(
    schema: pa.Schema, row_map: RowMap | None, needed: set[str] | None
) -> tuple[RowMap | None, set[str] | None]:
    """Return maps that make no more than the needed columns, and the columns that they need.

    None stands for all columns.
    """
    pruned: list[FunctionRef | SqlMap] = []
    for each, before, after in reversed(list(_with_schemas(schema, row_map))):
        if isinstance(each, FunctionRef) or before is None or after is None:
            needed, pruned = None, [each, *pruned]
            continue
        if needed is not None and needed <= set(after.names):
            each = each.only(_in_order(needed or _any_column(each, before, after), after))
        needed, pruned = set(each.columns(before)), [each.of(before), *pruned]
    return chained(pruned), needed


def _any_column(sql_map: SqlMap, before: pa.Schema, after: pa.Schema) -> set[str]:
    """Return a column of the result by which its rows can be counted, one that is read anyway."""
    first = after.names[0]
    read = set(sql_map.only([first]).columns(before)) - {first}
    return {next((name for name in after.names if name in read), first)}


def _with_schemas(
    schema: pa.Schema, row_map: RowMap | None
) -> Iterator[tuple[FunctionRef | SqlMap, pa.Schema | None, pa.Schema | None]]:
    """Yield each map with the schemas of the rows before and after it, as far as they are known."""
    before: pa.Schema | None = schema
    for each in maps_of(row_map):
        after = mapped_schema(before, each)
        yield each, before, after
        before = after


def _in_order(names: set[str], schema: pa.Schema) -> list[str]:
    """Return the names in the order of the schema.

    Without any column the number of rows would be lost, which count(*) needs.
    """
    return [name for name in schema.names if name in names] or schema.names[:1]


def _grouped_columns(spec: JobSpec, section: InputSpec) -> set[str] | None:
    """Return the columns that groups are made of; None if whole rows are needed."""
    reduce = spec.reduce
    by_key = spec.shuffle.partitioner in ("hash", "range")  # others may look at any column
    if reduce is None or not reduce.groups or not by_key:
        return None
    try:
        aggregates = [parse_aggregate(name, text) for name, text in reduce.aggregate.items()]
    except JobError:
        return None
    return {*section.key, *needed_columns(reduce.group_by, aggregates)}
