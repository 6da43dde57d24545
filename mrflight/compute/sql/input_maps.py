"""The queries that map the rows of an input, from its keys and steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mrflight.compute.sql.map import SqlMap
from mrflight.config.input_spec import InputSpec
from mrflight.config.row_steps import (
    Call,
    ExpressionStep,
    Filter,
    NamedExpression,
    RowStep,
    Select,
)


def keyed_maps(name: str, section: InputSpec) -> list[SqlMap]:
    """Return the queries of the keys ``filter`` and ``sql``."""
    maps = [each for each in [filter_map(name, section)] if each is not None]
    if section.sql is not None:
        maps.append(SqlMap(section.sql, section.sql_table or name, f"inputs.{name}.sql"))
    return maps


def filter_map(name: str, section: InputSpec) -> SqlMap | None:
    """Return the query of the key ``filter``; its result has only the ``columns``, if given."""
    if section.filter is None:
        return None
    key, table = f"inputs.{name}", section.sql_table or name
    steps: list[ExpressionStep] = [
        Filter(call=f"{key}.filter", table=table, conditions=(section.filter,))
    ]
    if section.columns is not None:
        selected = tuple(NamedExpression(column, column) for column in section.columns)
        steps.append(Select(call=f"{key}.columns", table=table, columns=selected))
    return SqlMap.of_steps(*steps)


def step_maps(steps: Sequence[RowStep]) -> Iterator[SqlMap | Call]:
    """Yield the maps of steps; those of expressions that follow one another are one query."""
    run: list[ExpressionStep] = []
    for step in steps:
        if run and (not isinstance(step, ExpressionStep) or step.table != run[0].table):
            yield SqlMap.of_steps(*run)
            run = []
        if isinstance(step, ExpressionStep):
            run.append(step)
        else:
            yield step if isinstance(step, Call) else SqlMap(step.text, step.table, step.call)
    if run:
        yield SqlMap.of_steps(*run)


def maps_of_rows_read(name: str, section: InputSpec) -> list[SqlMap]:
    """Return queries whose conditions are about the rows as they are read.

    These are the first ones, up to one that makes other columns.
    """
    maps = keyed_maps(name, section)
    if section.map is None and section.sql is None:
        first = next(step_maps(section.steps), None)
        maps += [first] if isinstance(first, SqlMap) else []
    return maps
