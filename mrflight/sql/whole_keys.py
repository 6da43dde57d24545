"""Whether a query's answers for partitions of whole keys make the answer for all rows.

A partition has all rows with the keys that it has, and of broadcast tables all rows. Of each part
of the plan it is known which columns tell the key of a row: what brings rows together has to do so
by these. What a plan does not show is let pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mrflight.sql.key_columns import KeyColumn, equalities, shown

if TYPE_CHECKING:
    from datafusion import DataFrame, Expr, LogicalPlan

Keys = Mapping[str, Sequence[str]]
"""The key columns of each table that is in partitions."""

_ONE = "or set shuffle.partitions = 1"
_LATER = f"do that in a stage after it, {_ONE}"

_SAME_ROWS = {"Filter", "Sort", "SubqueryAlias", "Unnest", "WindowExpr"}
_LEFT_ONLY = {"LeftSemi", "LeftAnti", "LeftMark"}
_RIGHT_ONLY = {"RightSemi", "RightAnti", "RightMark"}


@dataclass(frozen=True)
class _Rows:
    """Those of a part of a plan."""

    tables: tuple[str, ...] = ()
    """In partitions, of which they are made: none where everyone has them."""
    key: tuple[KeyColumn, ...] = ()
    """None where nobody can tell."""
    has_any: bool = True
    why_not: str | None = None
    """Why they are not those of all partitions together."""


def why_not_of_keys(rows: DataFrame, keys: Keys, schemas: Mapping[str, pa.Schema]) -> str | None:
    """What a query does that is not of whole keys, and what to do; None where nothing is known."""
    plan = rows.optimized_logical_plan()
    if table := _in_subquery(plan, keys):
        return (
            f"has a subquery over {table} that is no join; make a stage of it, whose result is "
            f"broadcast, {_ONE}"
        )
    found = _rows_of(plan, keys, schemas)
    if found.why_not is None and not found.tables and found.has_any:
        return (
            "gives rows only that every partition has, and would give them as often; select from "
            f"{next(iter(keys))}, {_ONE}"
        )
    return found.why_not


def _rows_of(plan: LogicalPlan, keys: Keys, schemas: Mapping[str, pa.Schema]) -> _Rows:
    node = plan.to_variant()
    kind = type(node).__name__
    if kind == "TableScan":
        return _scanned(node, keys, schemas)
    if kind == "RecursiveQuery":  # nobody knows what it comes to
        return _Rows(tuple(table for table in _scans(plan) if table in keys))
    parts = [_rows_of(part, keys, schemas) for part in plan.inputs()]
    if wrong := next((part for part in parts if part.why_not), None):
        return wrong
    tables = tuple(dict.fromkeys(table for part in parts for table in part.tables))
    has_any = any(part.has_any for part in parts) if parts else kind != "EmptyRelation"
    if kind == "EmptyRelation":
        has_any = bool(node.produce_one_row())
    if not tables:
        return _Rows(has_any=has_any)
    if judge := _JUDGES.get(kind):
        return judge(node, plan, parts, tables)
    if kind in _SAME_ROWS:
        (part,) = parts
        return _Rows(tables, _passed_on(node, kind, plan, part))
    return _Rows(tables)


def _scanned(node: Any, keys: Keys, schemas: Mapping[str, pa.Schema]) -> _Rows:
    table = node.table_name()
    if table not in keys:
        return _Rows()
    given = {name: each for (_, name), each in zip(node.projection(), _names(node), strict=True)}
    key = []
    for name in keys[table]:
        told = frozenset([given[name]] if name in given else [])
        kind = schemas[table].field(name).type if name in schemas[table].names else pa.null()
        key.append(KeyColumn(kind, frozenset([told] if told else []), told))
    return _Rows((table,), tuple(key))


def _passed_on(node: Any, kind: str, plan: LogicalPlan, part: _Rows) -> tuple[KeyColumn, ...]:
    if not part.key:
        return ()
    (before,) = (_names(each.to_variant()) for each in plan.inputs())
    if kind == "Filter":
        pairs = list(equalities(node.predicate()))
        return tuple(column.with_equal(pairs) for column in part.key)
    if kind == "SubqueryAlias":
        names = dict(zip(before, _names(node), strict=True))
    else:
        names = {name: name for name in before if name in _names(node)}
    return tuple(column.renamed(names) for column in part.key)


def _projected(
    node: Any, plan: LogicalPlan, parts: Sequence[_Rows], tables: tuple[str, ...]
) -> _Rows:
    outputs = list(zip(_names(node), node.projections(), strict=True))
    return _Rows(tables, tuple(column.named(outputs) for column in parts[0].key))


def _grouped(
    node: Any, plan: LogicalPlan, parts: Sequence[_Rows], tables: tuple[str, ...]
) -> _Rows:
    groups, key = node.group_by_exprs(), parts[0].key
    if not groups:
        return _Rows(tables, why_not=f"makes one row of all, and would of each; {_LATER}")
    names = ", ".join(shown(expr) for expr in groups)
    if any(expr.variant_name() == "GroupingSet" for expr in groups):
        if not names.startswith(("ROLLUP", "CUBE")):
            return _Rows(tables)
        return _Rows(tables, why_not=f"groups all rows together ({names}); {_LATER}")
    if not all(column.is_told(groups) for column in key):
        does = "groups by" if node.aggregate_exprs() else "looks for distinct"
        return _Rows(
            tables,
            why_not=f"{does} {names}, without the whole key; {_other_key(tables)} of these, "
            f"{_LATER}",
        )
    outputs = list(zip(_names(node), groups, strict=False))
    return _Rows(tables, tuple(column.named(outputs) for column in key))


def _other_key(tables: Sequence[str]) -> str:
    return f"make {' and '.join(f'inputs.{table}.key' for table in tables)}"


def _windowed(
    node: Any, plan: LogicalPlan, parts: Sequence[_Rows], tables: tuple[str, ...]
) -> _Rows:
    for window in node.get_window_expr():
        by = node.get_partition_exprs(window)
        if not all(column.is_told(by) for column in parts[0].key) or not (by or parts[0].key):
            names = ", ".join(shown(expr) for expr in by)
            does = f"by {names}, without the whole key" if by else "over all rows"
            return _Rows(
                tables,
                why_not=f"looks at rows in a window {does}; have the key in its partition by, "
                f"{_other_key(tables)} of these, {_LATER}",
            )
    return _Rows(tables, _passed_on(node, "WindowExpr", plan, parts[0]))


def _limited(
    node: Any, plan: LogicalPlan, parts: Sequence[_Rows], tables: tuple[str, ...]
) -> _Rows:
    return _Rows(tables, why_not=f"takes a number of rows, and would of each; {_LATER}")


def _sorted(node: Any, plan: LogicalPlan, parts: Sequence[_Rows], tables: tuple[str, ...]) -> _Rows:
    if node.get_fetch_val() is not None:
        return _limited(node, plan, parts, tables)
    return _Rows(tables, parts[0].key)


def _united(node: Any, plan: LogicalPlan, parts: Sequence[_Rows], tables: tuple[str, ...]) -> _Rows:
    if any(not part.tables and part.has_any for part in parts):
        return _Rows(
            tables,
            why_not="adds rows that every partition has, which would be there as often; "
            f"add them in a stage after it, {_ONE}",
        )
    out, keys = _names(node), []
    for each, part in zip(plan.inputs(), parts, strict=True):
        names = dict(zip(_names(each.to_variant()), out, strict=False))
        if part.tables:
            keys.append([column.renamed(names) for column in part.key])
    key = []
    for columns in zip(*keys, strict=False):
        equal = frozenset.intersection(*(column.equal for column in columns))
        or_null = frozenset.intersection(*(column.or_null for column in columns))
        key.append(KeyColumn(columns[0].kind, equal - {frozenset()}, or_null))
    return _Rows(tables, tuple(key))


def _joined(node: Any, plan: LogicalPlan, parts: Sequence[_Rows], tables: tuple[str, ...]) -> _Rows:
    left, right = parts
    how, pairs = str(node.join_type()), list(node.on())
    if left.tables and right.tables:
        return _joined_keys(how, pairs, left, right, tables)
    spread, alone = (left, "Left") if left.tables else (right, "Right")
    if how == "Inner":
        return _Rows(tables, tuple(column.with_equal(pairs) for column in spread.key))
    if how.startswith(alone):
        return _Rows(tables, spread.key)
    is_semi = how in ("LeftSemi", "RightSemi")
    if is_semi and not spread.key:
        return _Rows(tables)
    found = tuple(column.with_equal(pairs) for column in spread.key)
    met = [column.equal - old.equal for column, old in zip(found, spread.key, strict=True)]
    if is_semi and all(met):  # each of its rows meets those of one partition
        columns = (
            KeyColumn(column.kind, equal, frozenset(name for same in equal for name in same))
            for column, equal in zip(found, met, strict=True)
        )
        return _Rows(tables, tuple(columns))
    return _Rows(
        tables,
        why_not="keeps rows of an input that everyone has, which nobody knows to meet none; give "
        f"that a key instead of broadcast, {_ONE}",
    )


def _joined_keys(
    how: str,
    pairs: Sequence[tuple[Expr, Expr]],
    left: _Rows,
    right: _Rows,
    tables: tuple[str, ...],
) -> _Rows:
    columns = list(zip(left.key, right.key, strict=False))
    for ours, theirs in columns:
        by_pair = any(ours.is_met(one) and theirs.is_met(other) for one, other in pairs)
        is_same = frozenset() in ours.equal and frozenset() in theirs.equal
        if not (by_pair or is_same):
            equal = " and ".join(f"{shown(one)} = {shown(other)}" for one, other in pairs)
            does = f"by {equal}, which is not by their keys" if pairs else "by no equality"
            return _Rows(
                tables,
                why_not=f"joins {' with '.join(tables)} {does}; join them by all columns of "
                "inputs.*.key in their order, give keys that are so, set broadcast for a small "
                f"one, {_ONE}",
            )
    if how in _LEFT_ONLY | _RIGHT_ONLY:
        return _Rows(tables, left.key if how in _LEFT_ONLY else right.key)
    return _Rows(tables, tuple(_both(how, ours, theirs) for ours, theirs in columns))


def _both(how: str, ours: KeyColumn, theirs: KeyColumn) -> KeyColumn:
    if how == "Full":
        equal = frozenset(one | other for one in ours.equal for other in theirs.equal)
    else:
        none: frozenset[frozenset[str]] = frozenset()
        one = ours.equal if how in ("Inner", "Left") else none
        equal = one | (theirs.equal if how in ("Inner", "Right") else none)
    return KeyColumn(ours.kind, equal, ours.or_null | theirs.or_null)


_JUDGES: dict[str, Callable[[Any, LogicalPlan, Sequence[_Rows], tuple[str, ...]], _Rows]] = {
    "Aggregate": _grouped,
    "Join": _joined,
    "Limit": _limited,
    "Projection": _projected,
    "Sort": _sorted,
    "Union": _united,
    "WindowExpr": _windowed,
}


def _in_subquery(plan: LogicalPlan, keys: Keys) -> str | None:
    """A table in partitions that an expression's subquery reads: it is shown with the plan only."""
    depth = None
    for line in plan.display_indent().splitlines():
        words = line.lstrip()
        indent = len(line) - len(words)
        if depth is not None and indent <= depth:
            depth = None
        if words == "Subquery:" and depth is None:
            depth = indent
        for table in keys if depth is not None else ():
            scan = f"TableScan: {table}"
            if words == scan or words.startswith((f"{scan} ", f"{scan},")):
                return table
    return None


def _scans(plan: LogicalPlan) -> Iterator[str]:
    node = plan.to_variant()
    if type(node).__name__ == "TableScan":
        yield node.table_name()
    for part in plan.inputs():
        yield from _scans(part)


def _names(node: Any) -> list[str]:
    """Of the columns that it gives."""
    return list(node.schema().field_names()) if hasattr(node, "schema") else []
