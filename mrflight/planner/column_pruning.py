"""Leaves out columns of an input that neither its map nor the reduce reads."""

from __future__ import annotations

from mrflight.compute.sql.map import SqlMap
from mrflight.config.spec import InputSpec, JobSpec
from mrflight.errors import JobError
from mrflight.sources.base import Source
from mrflight.tasks.mapper import RowMap
from mrflight.tasks.operators.aggregates import parse_aggregate
from mrflight.tasks.operators.partial_columns import needed_columns


def prune_columns(spec: JobSpec, source: Source, row_map: RowMap | None) -> Source:
    """Return the input without unused columns, as far as its format can skip them.

    Returns it unchanged if the used columns are not known, or if one is missing: the planner
    reports the mistake.
    """
    schema = source.reader.schema
    if schema is None:
        return source
    if isinstance(row_map, SqlMap):
        try:
            return source.select(row_map.columns(schema))
        except JobError:
            return source
    needed = _grouped_columns(spec, spec.inputs[source.name]) if row_map is None else None
    if needed is None or not set(needed) <= set(schema.names):
        return source
    # Without any column the number of rows would be lost, which count(*) needs.
    return source.select([name for name in schema.names if name in needed] or schema.names[:1])


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
