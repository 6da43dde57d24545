"""Reads from the plan of a query its result, the columns that it needs, and how it can be run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mrflight.compute.layout import canonical_schema
from mrflight.errors import JobFileError

if TYPE_CHECKING:
    from datafusion import DataFrame, Expr, LogicalPlan

MAX_PLANS = 64
"""The plans that a process caches. Each has a session without rows. Planning a query takes 2 to
4 ms. A map asks for its plan three times, the task of a join up to six times, and a stage has many
tasks with the same queries."""

_ROW_WISE = {"Projection", "Filter", "SubqueryAlias", "TableScan", "Unnest"}
"""Nodes that process each row by itself."""

_SUBQUERY = "has a subquery over other rows"

_NOT_ROW_WISE = {
    "Aggregate": "aggregates rows of different tasks",
    "Distinct": "compares rows of different tasks for distinct",
    "Sort": "sorts rows",
    "Limit": "limits the rows",
    "WindowExpr": "uses a window over several rows",
    "Join": "joins rows of different tasks",
}
"""Why these nodes cannot be applied to single rows."""

_INSTEAD = {"Sort": "use reduce.sort_by", "Limit": "use reduce.limit"}
"""What to do, unless SQL of a reduce can do it."""

_NO_ROWS = {"Explain", "Analyze", "DescribeTable"}


@lru_cache(MAX_PLANS)
def optimized_plan(rows: DataFrame) -> LogicalPlan:
    """Return the plan of a query as it will run, which takes 0.3 ms the first time."""
    return rows.optimized_logical_plan()


def explain_not_row_wise(rows: DataFrame, table: str) -> str | None:
    """Return why a query cannot be answered row by row; None if it can."""
    plan = rows.logical_plan()
    for node in _nodes(plan):
        kind = type(node).__name__
        if reason := _NOT_ROW_WISE.get(kind):
            return f"{reason}; {_INSTEAD.get(kind, 'do that in [reduce]')}"
        if kind not in _ROW_WISE or (kind == "TableScan" and node.table_name() != table):
            return f"does not only select from {table}"
    return _SUBQUERY if _has_subquery(plan) else None


_LEFT_ALONE = {"Inner", "Left", "LeftSemi", "LeftAnti", "LeftMark"}
_RIGHT_ALONE = {"Inner", "Right", "RightSemi", "RightAnti", "RightMark"}
"""The joins whose left, or right, side can be sliced. They return no unmatched rows of the other
side, so every task can have all of that side."""


def explain_not_sliceable(rows: DataFrame, stream: str) -> str | None:
    """Return why a query cannot be answered for slices of one table; None if it can.

    Each slice is queried with all rows of the other tables.
    """
    plan = optimized_plan(rows)
    if _has_subquery(plan):
        return f"has a subquery that is not a join; make it a stage, or give {stream} a key"
    is_read, reason = _explain_not_for_slices(plan, stream)
    if is_read or reason or type(plan.to_variant()).__name__ == "EmptyRelation":
        return reason
    return (
        f"does not read {stream}, and would return its whole result for each slice; remove "
        "that input, or select from it"
    )


def _explain_not_for_slices(plan: LogicalPlan, stream: str) -> tuple[bool, str | None]:
    """Return whether a plan reads the table, and why it cannot be answered for slices of it."""
    node = plan.to_variant()
    kind = type(node).__name__
    if kind == "TableScan":
        return scanned_table(node, [stream]) == stream, None
    found = [_explain_not_for_slices(part, stream) for part in plan.inputs()]
    reasons = [reason for _, reason in found if reason]
    sides = [has for has, _ in found]
    if not any(sides) or reasons:
        return any(sides), reasons[0] if reasons else None
    if kind == "Join" and not all(sides):
        alone = _LEFT_ALONE if sides[0] else _RIGHT_ALONE
        if str(node.join_type()) in alone:
            return True, None
        return True, "keeps unmatched rows of a broadcast input, which no task knows alone"
    if kind in _ROW_WISE:
        return True, None
    does = _NOT_ROW_WISE.get(kind, f"does more with {stream} than select and join")
    return True, f"{does}; do that in a later stage, or give {stream} a key"


def scanned_table(scan: Any, tables: Collection[str]) -> str:
    """Return the table that a scan reads, without a qualification such as ``public.``."""
    name = str(scan.table_name())
    if name in tables:
        return name
    alone = name.removeprefix("datafusion.").removeprefix("public.")
    return alone if alone in tables else name


def is_null_aware(join: LogicalPlan) -> bool:
    """Return whether a join is a `not in`, which returns nothing if the other side has a null.

    Only the plan's text shows that. A column named ``null_aware`` is mistaken for it.
    """
    return "null_aware" in join.display()


def order_at_the_end(rows: DataFrame) -> str | None:
    """Return "sort" or "count" if a query orders or limits its result; None otherwise."""
    plan = rows.logical_plan()
    while True:
        kind = type(plan.to_variant()).__name__
        if kind in ("Sort", "Limit"):
            return "sort" if kind == "Sort" else "count"
        if kind not in ("Projection", "SubqueryAlias"):
            return None
        (plan,) = plan.inputs()


def result_schema(rows: DataFrame, key_path: str) -> pa.Schema:
    """Return the schema of a query's result, in plain types. Raise JobFileError for no result."""
    if type(rows.logical_plan().to_variant()).__name__ in _NO_ROWS:
        raise JobFileError(f"{key_path}: this sql returns no rows; write a query that selects some")
    schema = canonical_schema(pa.schema(rows.schema()))
    name, times = Counter(schema.names).most_common(1)[0]
    if times > 1:
        raise JobFileError(
            f"{key_path}: the result has {times} columns {name!r}; rename one with `as`"
        )
    return schema


def used_columns(rows: DataFrame, schemas: Mapping[str, pa.Schema]) -> dict[str, list[str]]:
    """Return the columns that a query reads of each table: at least one, to count the rows by."""
    plan = optimized_plan(rows)
    used: dict[str, set[str]] = {name: set() for name in schemas}
    for node in _nodes(plan):
        if type(node).__name__ == "TableScan" and (table := scanned_table(node, used)) in used:
            used[table] |= {name for _, name in node.projection()}
    if _has_subquery(plan):  # its tables are no inputs of the plan
        used = {name: set(schema.names) for name, schema in schemas.items()}
    return {
        table: [name for name in schema.names if name in used[table]] or schema.names[:1]
        for table, schema in schemas.items()
    }


def count_scans(rows: DataFrame, tables: Collection[str]) -> int:
    """Return how often a query reads tables."""
    nodes = _nodes(optimized_plan(rows))
    scans = (node for node in nodes if type(node).__name__ == "TableScan")
    return sum(scanned_table(scan, tables) in tables for scan in scans)


PURE = {
    "Between",
    "BinaryExpr",
    "Cast",
    "Column",
    "InList",
    "IsFalse",
    "IsNotFalse",
    "IsNotNull",
    "IsNotTrue",
    "IsNull",
    "IsTrue",
    "Like",
    "Literal",
    "Negative",
    "Not",
    "TryCast",
}
"""Expressions whose value follows from columns alone. A function may be random()."""


def conditions_on(rows: DataFrame, columns: Collection[str]) -> list[Expr]:
    """Return those of `scan_conditions` that need no other columns."""
    from datafusion import Expr

    return [Expr(term) for term in scan_conditions(rows) if _needs_only(term, columns)]


def scan_conditions(rows: DataFrame) -> list[Any]:
    """Return the conditions of a query on the rows of its only table, as raw expressions.

    A row is in the result only if all of them are true.
    """
    scanned = [
        node
        for node in _nodes(optimized_plan(rows))
        if type(node).__name__ == "Filter"
        and type(node.input()[0].to_variant()).__name__ == "TableScan"
    ]
    return [term for node in scanned for term in _terms(node.predicate())]


def _terms(condition: Any) -> Iterator[Any]:
    """Yield the conditions that are connected by ``and``."""
    if condition.variant_name() == "BinaryExpr" and condition.rex_call_operator() == "AND":
        for part in condition.rex_call_operands():
            yield from _terms(part)
    else:
        yield condition


def _needs_only(expression: Any, columns: Collection[str]) -> bool:
    kind = expression.variant_name()
    if kind == "Column":
        return expression.to_variant().name() in columns
    if kind == "Literal" or kind not in PURE:
        return kind == "Literal"
    return all(_needs_only(part, columns) for part in expression.rex_call_operands())


def reads_floats(rows: DataFrame, schemas: Mapping[str, pa.Schema]) -> bool:
    """Return whether a query reads columns of floats.

    The answer is the same if ``schemas`` has only the columns of `used_columns`.
    """
    used = used_columns(rows, schemas)
    return any(
        has_floats(pa.schema([schemas[table].field(name) for name in names]))
        for table, names in used.items()
    )


def has_floats(schema: pa.Schema) -> bool:
    """Return whether a table has columns of floats, or with floats within them."""
    return any(_has_floats(field.type) for field in schema)


def _has_floats(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_floats(kind.field(i).type) for i in range(kind.num_fields))
    return bool(pa.types.is_floating(kind))


def _nodes(plan: LogicalPlan) -> Iterator[Any]:
    yield plan.to_variant()
    for part in plan.inputs():
        yield from _nodes(part)


def _has_subquery(plan: LogicalPlan) -> bool:
    """Return whether an expression has a subquery, which only the plan's text shows."""
    return any(line.strip() == "Subquery:" for line in plan.display_indent().splitlines())
