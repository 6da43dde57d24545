"""Plans the steps of `mrflight.config.row_steps` that are made of expressions, as one query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from mrflight.compute.sql.engine import query, quoted, translate_errors
from mrflight.compute.sql.expressions import column, parse_expression
from mrflight.config.pickled_functions import shown_text
from mrflight.config.row_steps import (
    Compute,
    Drop,
    ExpressionStep,
    Filter,
    NamedExpression,
    Rename,
    Select,
    WithColumns,
)
from mrflight.errors import ColumnNotFoundError, JobFileError

if TYPE_CHECKING:
    from datafusion import DataFrame, Expr, SessionContext

ALL_COLUMNS = "*"
"""The text of a selection that stands for all columns."""

_MAX_SHOWN = 200


class RowSteps(msgspec.Struct, frozen=True):
    """Some steps in a row, over the rows of one table."""

    steps: tuple[ExpressionStep, ...]
    """At least one."""
    needed: tuple[str, ...] = ()
    """The columns of the result that are needed; by default all."""

    def __str__(self) -> str:
        shown = ".".join(step.call for step in self.steps)
        return shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}..."

    def plan(self, session: SessionContext, table: str) -> DataFrame:
        """Plan the steps over a table; an error names the call of the step that is wrong."""
        rows = session.table(quoted(table))
        for step in self.steps:
            with translate_errors(step.call, {step.table: pa.schema(rows.schema())}):
                rows = _PLANS[type(step)](rows, step).alias(quoted(step.table))
                rows.optimized_logical_plan()  # finds values of types that do not fit
        return rows.select(*map(column, self.needed)) if self.needed else rows


QueryOfRows = str | RowSteps
"""A query over the rows of one table."""


def plan_rows(session: SessionContext, wanted: QueryOfRows, table: str) -> DataFrame:
    """Plan a query over a table of the session. Raises what DataFusion raises, and JobError."""
    return query(session, wanted) if isinstance(wanted, str) else wanted.plan(session, table)


def _plan_filter(rows: DataFrame, step: Filter) -> DataFrame:
    conditions = [parse_expression(rows, text, step.call) for text in step.conditions]
    found = rows.select(*(each.alias(str(number)) for number, each in enumerate(conditions)))
    for text, field in zip(step.conditions, pa.schema(found.schema()), strict=True):
        if not pa.types.is_boolean(field.type) and not pa.types.is_null(field.type):
            raise JobFileError(
                f"{step.call}: {shown_text(text)!r} is {field.type} and not a condition; "
                "compare it with something"
            )
    return rows.filter(reduce(and_, conditions))


def _plan_select(rows: DataFrame, step: Select) -> DataFrame:
    pairs = []
    for each in step.columns:
        if each == NamedExpression(ALL_COLUMNS) and ALL_COLUMNS not in rows.schema().names:
            pairs += [(name, column(name)) for name in rows.schema().names]
        else:
            pairs.append(_named(rows, each, step.call))
    return _select(rows, pairs, step.call)


def _plan_with_columns(rows: DataFrame, step: WithColumns) -> DataFrame:
    pairs = [_named(rows, each, step.call) for each in step.columns]
    for each, (name, expression) in zip(step.columns, pairs, strict=True):
        if each.name is None and _own_name(expression) is None:
            raise JobFileError(f"{step.call}: {name!r} needs a name; write name={name!r}")
    _check_distinct([name for name, _ in pairs], step.call)
    return _select(
        rows, {**{name: column(name) for name in rows.schema().names}, **dict(pairs)}.items(), ""
    )


def _plan_rename(rows: DataFrame, step: Rename) -> DataFrame:
    new = dict(step.names)
    _check_exist(rows, new, step)
    return _select(
        rows, [(new.get(name, name), column(name)) for name in rows.schema().names], step.call
    )


def _plan_drop(rows: DataFrame, step: Drop) -> DataFrame:
    _check_exist(rows, step.columns, step)
    kept = [name for name in rows.schema().names if name not in step.columns]
    if not kept:
        raise JobFileError(f"{step.call}: no column is left; keep at least one")
    return _select(rows, [(name, column(name)) for name in kept], step.call)


def _plan_compute(rows: DataFrame, step: Compute) -> DataFrame:
    schema = pa.schema(rows.schema())
    if step.text in schema.names:
        return rows
    narrow = {
        field.name
        for field in schema
        if pa.types.is_integer(field.type) and field.type.bit_width < 64
    }
    apart = "#" * (1 + max(len(name) - len(name.lstrip("#")) for name in schema.names))
    kept = {name: f"{apart}{name}" if name in narrow else name for name in schema.names}
    wide = rows.select(
        *(column(name).alias(kept[name]) for name in schema.names),
        *(column(name).cast(pa.int64()).alias(name) for name in schema.names if name in narrow),
    ).alias(quoted(step.table))
    value = parse_expression(wide, step.text, step.call)
    pairs = [(name, column(kept[name])) for name in schema.names]
    return _select(wide, [*pairs, (step.text, value)], step.call)


_PLANS: dict[type, Callable[..., DataFrame]] = {
    Filter: _plan_filter,
    Select: _plan_select,
    WithColumns: _plan_with_columns,
    Rename: _plan_rename,
    Drop: _plan_drop,
    Compute: _plan_compute,
}


def _named(rows: DataFrame, wanted: NamedExpression, call: str) -> tuple[str, Expr]:
    """Return an expression with the name of its column."""
    expression = parse_expression(rows, wanted.text, call)
    name = wanted.name or _own_name(expression)
    return (shown_text(wanted.text) if name is None else name), expression


def _own_name(expression: Expr) -> str | None:
    """Return the name of a column, or an alias; None for other expressions."""
    kind = expression.variant_name()
    if kind == "Alias":
        return str(expression.to_variant().alias())
    return str(expression.to_variant().name()) if kind == "Column" else None


def _select(rows: DataFrame, columns: Iterable[tuple[str, Expr]], call: str) -> DataFrame:
    pairs = list(columns)
    _check_distinct([name for name, _ in pairs], call)
    return rows.select(*(expression.alias(name) for name, expression in pairs))


def _check_distinct(names: Sequence[str], call: str) -> None:
    name, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise JobFileError(f"{call}: {times} columns would be named {name!r}; rename one")


def _check_exist(rows: DataFrame, names: Iterable[str], step: Rename | Drop) -> None:
    known = rows.schema().names
    for name in names:
        if name not in known:
            raise ColumnNotFoundError.among(name, known, f"{step.call}: {step.table}")
