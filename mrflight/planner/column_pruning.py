"""Which columns of an input are read: those that its map, or the groups, are made of."""

from __future__ import annotations

from mrflight.compute.sql.map import SqlMap
from mrflight.config.spec import InputSpec, JobSpec
from mrflight.errors import JobError
from mrflight.sources.base import Source
from mrflight.tasks.mapper import RowMap
from mrflight.tasks.operators.aggregates import parse_aggregate
from mrflight.tasks.operators.partial_columns import needed_columns


def narrowed(spec: JobSpec, source: Source, row_map: RowMap | None) -> Source:
    """The input without the columns that nobody looks at, as far as its format can leave them out.

    As it is where that cannot be told, or a column is missing: planning names the mistake.
    """
    schema = source.reader.schema
    if schema is None:
        return source
    if isinstance(row_map, SqlMap):
        try:
            return source.narrowed(row_map.columns(schema))
        except JobError:
            return source
    needed = _grouped(spec, spec.inputs[source.name]) if row_map is None else None
    if needed is None or not set(needed) <= set(schema.names):
        return source
    # Of no column nobody would know how many rows there are, which count(*) asks for.
    return source.narrowed([name for name in schema.names if name in needed] or schema.names[:1])


def _grouped(spec: JobSpec, section: InputSpec) -> set[str] | None:
    """What groups of an input's rows are made of; None where its rows are of other use."""
    reduce = spec.reduce
    by_key = spec.shuffle.partitioner in ("hash", "range")  # others may look at any column
    if reduce is None or not reduce.groups or not by_key:
        return None
    try:
        aggregates = [parse_aggregate(name, text) for name, text in reduce.aggregate.items()]
    except JobError:
        return None
    return {*section.key, *needed_columns(reduce.group_by, aggregates)}
