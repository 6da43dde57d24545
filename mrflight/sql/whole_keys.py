"""Whether a query's answers for partitions of whole keys make the answer for all rows.

A partition has all rows with the keys that it has, and of broadcast tables all rows. Of each part
of the plan it is known which columns tell the key of a row: what brings rows together has to do so
by these. Each kind of a plan's nodes is judged, and what is not shown to be right is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mrflight.join_keys import meets
from mrflight.sql.grouping_sets import columns_of_all
from mrflight.sql.key_columns import CONSTANT, KeyColumn, equalities, not_nulls, shown
from mrflight.sql.plans import is_null_aware, scanned_table

if TYPE_CHECKING:
    from datafusion import DataFrame, Expr, LogicalPlan

Keys = Mapping[str, Sequence[str]]
"""The key columns of each table that is in partitions."""

_ONE = "or set shuffle.partitions = 1"
_LATER = f"do that in a stage after it, {_ONE}"

_SCAN = "TableScan: "
_SAME_ROWS = {"Filter", "Sort", "SubqueryAlias", "Unnest", "WindowExpr"}
_KEEPING = {side: {side, f"{side}Semi", f"{side}Anti", f"{side}Mark"} for side in ("Left", "Right")}
"""Joins that have no row but those of one side, with or without one of the other."""


@dataclass(frozen=True)
class _Rows:
    """Those of a part of a plan."""

    tables: tuple[str, ...] = ()
    """In partitions, of which they are made: none where everyone has them."""
    key: tuple[KeyColumn, ...] = ()
    """All columns of it where there are tables."""
    has_any: bool = True
    why_not: str | None = None
    """Why they are not those of all partitions together."""


def why_not_of_keys(rows: DataFrame, keys: Keys, schemas: Mapping[str, pa.Schema]) -> str | None:
    """What a query does that is not of whole keys, and what to do; None where it is of such."""
    plan = rows.optimized_logical_plan()
    if table := _in_subquery(plan, schemas.keys() - keys.keys()):
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
    return _Rows(
        tables,
        why_not=f"does more with {' and '.join(tables)} than is known to be right ({kind}); make a "
        f"stage of it, {_ONE}",
    )


def _scanned(node: Any, keys: Keys, schemas: Mapping[str, pa.Schema]) -> _Rows:
    table = scanned_table(node, schemas)
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
    (before,) = (_names(each.to_variant()) for each in plan.inputs())
    if kind == "Filter":
        pairs, filled = list(equalities(node.predicate())), list(not_nulls(node.predicate()))
        return tuple(column.with_equal(pairs).without_null(filled) for column in part.key)
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
        return _grouped_in_sets(node, names, key, tables)
    if not all(column.is_told(groups) for column in key):
        does = "groups by" if node.aggregate_exprs() else "looks for distinct"
        return _Rows(
            tables,
            why_not=f"{does} {names}, without the whole key; {_other_key(tables)} of these, "
            f"{_LATER}",
        )
    outputs = list(zip(_names(node), groups, strict=False))
    return _Rows(tables, tuple(column.named(outputs) for column in key))


def _grouped_in_sets(
    node: Any, names: str, key: Sequence[KeyColumn], tables: tuple[str, ...]
) -> _Rows:
    if names.startswith(("ROLLUP", "CUBE")):
        return _Rows(tables, why_not=f"groups all rows together ({names}); {_LATER}")
    always = {name: name for name in columns_of_all(node.group_by_exprs(), _names(node))}
    kept = tuple(column.renamed(always) for column in key)
    if not all(column.equal for column in kept):
        return _Rows(
            tables,
            why_not=f"groups by sets that do not all have the whole key ({names}); have it in each "
            f"of them, {_LATER}",
        )
    return _Rows(tables, kept)


def _other_key(tables: Sequence[str]) -> str:
    return f"make {' and '.join(f'inputs.{table}.key' for table in tables)}"


def _windowed(
    node: Any, plan: LogicalPlan, parts: Sequence[_Rows], tables: tuple[str, ...]
) -> _Rows:
    for window in node.get_window_expr():
        by = node.get_partition_exprs(window)
        if not all(column.is_told(by) for column in parts[0].key):
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
    return _Rows(tables, tuple(_of_all(columns) for columns in zip(*keys, strict=True)))


def _of_all(columns: Sequence[KeyColumn]) -> KeyColumn:
    """What tells a key in the rows of several tables: nothing where equal ones are not together."""
    kind = columns[0].kind
    if not all(meets(kind, column.kind) for column in columns):
        return KeyColumn(kind, frozenset(), frozenset())
    equal = frozenset.intersection(*(column.equal for column in columns))
    or_null = frozenset.intersection(*(column.or_null for column in columns))
    has_null = any(column.has_null for column in columns)
    return KeyColumn(kind, equal - {CONSTANT}, or_null, has_null)


def _joined(node: Any, plan: LogicalPlan, parts: Sequence[_Rows], tables: tuple[str, ...]) -> _Rows:
    left, right = parts
    how, pairs = str(node.join_type()), list(node.on())
    if left.tables and right.tables:
        return _joined_keys(node, plan, left, right, tables)
    spread, alone = (left, "Left") if left.tables else (right, "Right")
    if how == "Inner":
        return _Rows(tables, tuple(column.with_equal(pairs) for column in spread.key))
    if how in _KEEPING[alone]:
        return _Rows(tables, spread.key)
    is_semi = how in ("LeftSemi", "RightSemi")
    found = tuple(column.with_equal(pairs) for column in spread.key)
    met = [column.equal - old.equal for column, old in zip(found, spread.key, strict=True)]
    if is_semi and all(met):  # each of its rows meets those of one partition
        columns = (
            replace(column, equal=equal, or_null=column.or_null - old.or_null)
            for column, old, equal in zip(found, spread.key, met, strict=True)
        )
        return _Rows(tables, tuple(columns))
    return _Rows(
        tables,
        why_not="keeps rows of an input that everyone has, which nobody knows to meet none; give "
        f"that a key instead of broadcast, {_ONE}",
    )


def _joined_keys(
    node: Any, plan: LogicalPlan, left: _Rows, right: _Rows, tables: tuple[str, ...]
) -> _Rows:
    how, pairs = str(node.join_type()), list(node.on())
    columns = list(zip(left.key, right.key, strict=True))
    if why_not := _why_apart(columns, pairs, node.null_equals_null(), tables):
        return _Rows(tables, why_not=why_not)
    if is_null_aware(plan) and not all(_has_one_not_in(*both, pairs) for both in columns):
        return _Rows(
            tables,
            why_not="asks with not in, of which a null anywhere in the subquery makes nothing; "
            f"write not exists, or have `is not null` of both sides' keys, {_ONE}",
        )
    has_met = how in ("Inner", "LeftSemi", "RightSemi") and not node.null_equals_null()
    filled = [expr for pair in pairs for expr in pair] if has_met else []
    for side, rows in (("Left", left), ("Right", right)):
        if how in _KEEPING[side] - {side}:
            return _Rows(tables, tuple(column.without_null(filled) for column in rows.key))
    return _Rows(tables, tuple(_both(how, ours, theirs, filled) for ours, theirs in columns))


def _why_apart(
    columns: Sequence[tuple[KeyColumn, KeyColumn]],
    pairs: Sequence[tuple[Expr, Expr]],
    also_by_null: bool,
    tables: tuple[str, ...],
) -> str | None:
    """Why rows that are to meet may be in different partitions."""
    equal = " and ".join(f"{shown(one)} = {shown(other)}" for one, other in pairs)
    for ours, theirs in columns:
        if not meets(ours.kind, theirs.kind):
            return (
                f"joins {' with '.join(tables)}, whose keys are {ours.kind} and {theirs.kind}, so "
                "that equal ones are not in one partition; cast one to the type of the other in a "
                f"map or sql, {_ONE}"
            )
        by_pair = any(
            ours.is_met(one, also_by_null=also_by_null)
            and theirs.is_met(other, also_by_null=also_by_null)
            for one, other in pairs
        )
        if not (by_pair or ours.is_same_constant(theirs)):
            does = f"by {equal}, which is not by their keys" if pairs else "by no equality"
            return (
                f"joins {' with '.join(tables)} {does}; join them by all columns of "
                "inputs.*.key in their order, give keys that are so, set broadcast for a small "
                f"one, {_ONE}"
            )
    return None


def _has_one_not_in(ours: KeyColumn, theirs: KeyColumn, pairs: Sequence[tuple[Expr, Expr]]) -> bool:
    """Whether not in is of the rows of one partition: nulls are of all, also where it has none."""
    if ours.is_same_constant(theirs):
        return True
    is_of_values = all(
        ours.is_met(one, also_by_null=True) and theirs.is_met(other, also_by_null=True)
        for one, other in pairs
    )
    return is_of_values and not ours.has_null and not theirs.has_null


def _both(how: str, ours: KeyColumn, theirs: KeyColumn, filled: Sequence[Expr]) -> KeyColumn:
    or_null = ours.or_null | theirs.or_null
    if how == "Full":
        equal = frozenset(
            one | other for one in ours.equal for other in theirs.equal if one and other
        )
        has_null = ours.has_null or theirs.has_null
        if not ours.is_same_constant(theirs):
            return KeyColumn(ours.kind, equal, or_null, has_null)
        return KeyColumn(ours.kind, equal | {CONSTANT}, or_null, has_null, ours.constant)
    if how == "Left":
        return replace(ours, or_null=or_null)
    if how == "Right":
        return replace(theirs, or_null=or_null)
    one, other = ours.without_null(filled), theirs.without_null(filled)
    return KeyColumn(
        ours.kind,
        ours.equal | theirs.equal,
        or_null,
        one.has_null and other.has_null,
        ours.constant if ours.constant is not None else theirs.constant,
    )


_JUDGES: dict[str, Callable[[Any, LogicalPlan, Sequence[_Rows], tuple[str, ...]], _Rows]] = {
    "Aggregate": _grouped,
    "Join": _joined,
    "Limit": _limited,
    "Projection": _projected,
    "Sort": _sorted,
    "Union": _united,
    "WindowExpr": _windowed,
}


def _in_subquery(plan: LogicalPlan, whole: Collection[str]) -> str | None:
    """What an expression's subquery reads that is not whole: it is shown with the plan only."""
    depth = None
    for line in plan.display_indent().splitlines():
        words = line.lstrip()
        indent = len(line) - len(words)
        if depth is not None and indent <= depth:
            depth = None
        if words == "Subquery:" and depth is None:
            depth = indent
        if depth is None or not words.startswith(_SCAN):
            continue
        scan = words.removeprefix(_SCAN)
        if not any(scan == name or scan.startswith(f"{name} projection=[") for name in whole):
            return scan.partition(" projection=[")[0]
    return None


def _names(node: Any) -> list[str]:
    """Of the columns that it gives."""
    return list(node.schema().field_names()) if hasattr(node, "schema") else []
