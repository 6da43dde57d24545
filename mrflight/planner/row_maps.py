"""Plans what maps the rows of an input, from its sections: a pure function."""

from __future__ import annotations

from mrflight.compute.sql.input_maps import keyed_maps, step_maps
from mrflight.compute.sql.map import SqlMap
from mrflight.compute.sql.row_steps import RowSteps
from mrflight.config.aggregates import parse_aggregate
from mrflight.config.functions import FunctionRef
from mrflight.config.row_steps import Compute
from mrflight.config.spec import JobSpec
from mrflight.errors import JobError
from mrflight.sources.base import Source
from mrflight.tasks.mapper import RowMap, chained, mapped_schema


def plan_map(spec: JobSpec, source: Source, folder: str) -> RowMap | None:
    """Return what maps the rows of an input; UserFunctionError if a function's name is invalid."""
    maps = input_maps(spec, source.name, folder)
    return chained([*maps, *_arguments(spec, source, chained(maps))])


def input_maps(spec: JobSpec, name: str, folder: str) -> list[FunctionRef | SqlMap]:
    """Return what maps the rows of an input by the settings of its section alone."""
    section = spec.inputs[name]
    maps: list[FunctionRef | SqlMap] = [*keyed_maps(name, section)]
    if section.map is not None:
        maps.append(FunctionRef.parse(section.map, f"inputs.{name}.map", folder))
    for each in step_maps(section.steps):
        if isinstance(each, SqlMap):
            maps.append(each)
        else:
            maps.append(FunctionRef.parse(each.function, each.call, folder))
    return maps


def _arguments(spec: JobSpec, source: Source, row_map: RowMap | None) -> list[SqlMap]:
    """Return the map that computes the expressions in aggregates, if there are any."""
    if spec.reduce is None:
        return []
    try:
        schema = mapped_schema(source.reader.schema, row_map)
        aggregates = [parse_aggregate(*each) for each in spec.reduce.aggregate.items()]
    except JobError:  # which is reported where the map and the reduce are planned
        return []
    section = spec.inputs[source.name]
    table = section.steps[-1].table if section.steps else section.sql_table or source.name
    steps = {
        each.column: Compute(call=f"reduce.aggregate.{each.name}", table=table, text=each.column)
        for each in aggregates
        if each.may_be_expression and each.column is not None
        if schema is None or each.column not in schema.names
    }
    if not steps:
        return []
    query = RowSteps(tuple(steps.values()))
    return [SqlMap(query, table, str(query) if len(steps) == 1 else "reduce.aggregate")]
