"""Checks that a query can run for each partition of co-partitioned tables by itself.

The union of the results of all partitions must be the result for all rows. A partition has all rows
of each of its keys, and all rows of broadcast tables. The check walks the plan from the tables up,
and tracks for each node the columns that determine the key of a row. A node that compares rows with
each other must do so by these columns. A node that is not known to be correct is rejected.

The proof could be shorter if it accepted only plain key columns. But DataFusion rewrites plans
before they run: it casts keys, turns subqueries into semi and anti joins, pushes equalities with
constants around, and coalesces the keys of full joins. A check by plain names would reject queries
that users write, or accept some that are wrong. The tests compare the partitioned result of each
accepted query with DuckDB's result for all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mrflight.compute.join_types import joinable
from mrflight.compute.sql.copartitioned_joins import check_join
from mrflight.compute.sql.key_columns import (
    CONSTANT,
    OR_ONE_PARTITION,
    Key,
    KeyColumn,
    NotCopartitionedError,
    PartitionedPlan,
    equalities,
    expr_text,
    not_nulls,
)
from mrflight.compute.sql.plans import optimized_plan, scanned_table

if TYPE_CHECKING:
    from datafusion import DataFrame, Expr, LogicalPlan


Keys = Mapping[str, Sequence[str]]
"""The key columns of each partitioned table."""

_LATER = f"do that in a stage after it, {OR_ONE_PARTITION}"

_SCAN = "TableScan: "
_SAME_ROWS = {"Filter", "Sort", "SubqueryAlias", "Unnest", "WindowExpr"}


def explain_not_copartitioned(
    rows: DataFrame, keys: Keys, schemas: Mapping[str, pa.Schema]
) -> str | None:
    """Return what a query does across partitions and what to do instead; None if nothing."""
    plan = optimized_plan(rows)
    if table := _in_subquery(plan, schemas.keys() - keys.keys()):
        return (
            f"has a subquery over {table} that is not a join; make it a stage and broadcast "
            f"its result, {OR_ONE_PARTITION}"
        )
    try:
        found = _check_node(plan, keys, schemas)
    except NotCopartitionedError as error:
        return str(error)
    if not found.tables and found.has_any:
        return (
            "only returns rows that every partition has, once for each; select from "
            f"{next(iter(keys))}, {OR_ONE_PARTITION}"
        )
    return None


def _check_node(plan: LogicalPlan, keys: Keys, schemas: Mapping[str, pa.Schema]) -> PartitionedPlan:
    """Return the properties of the rows of a node, after checking the nodes below it.

    Raises NotCopartitionedError if the rows differ from those of all partitions together.
    """
    node = plan.to_variant()
    kind = type(node).__name__
    if kind == "TableScan":
        return _check_scan(node, keys, schemas)
    parts = [_check_node(part, keys, schemas) for part in plan.inputs()]
    tables = tuple(dict.fromkeys(table for part in parts for table in part.tables))
    has_any = any(part.has_any for part in parts) if parts else kind != "EmptyRelation"
    if kind == "EmptyRelation":
        has_any = bool(node.produce_one_row())
    if not tables:
        return PartitionedPlan(has_any=has_any)
    if check := _CHECKS.get(kind):
        return PartitionedPlan(tables, check(node, plan, parts, tables))
    if kind in _SAME_ROWS:
        (part,) = parts
        return PartitionedPlan(tables, _key_after(node, kind, plan, part))
    raise NotCopartitionedError(
        f"applies {kind} to {' and '.join(tables)}, which may need rows of other partitions; make "
        f"it a stage, {OR_ONE_PARTITION}"
    )


def _check_scan(node: Any, keys: Keys, schemas: Mapping[str, pa.Schema]) -> PartitionedPlan:
    table = scanned_table(node, schemas)
    if table not in keys:
        return PartitionedPlan()
    given = {name: each for (_, name), each in zip(node.projection(), _names(node), strict=True)}
    key = []
    for name in keys[table]:
        output_column = frozenset([given[name]] if name in given else [])
        kind = schemas[table].field(name).type if name in schemas[table].names else pa.null()
        key.append(
            KeyColumn(kind, frozenset([output_column] if output_column else []), output_column)
        )
    return PartitionedPlan((table,), tuple(key))


def _key_after(node: Any, kind: str, plan: LogicalPlan, part: PartitionedPlan) -> Key:
    (before,) = (_names(each.to_variant()) for each in plan.inputs())
    if kind == "Filter":
        pairs, filled = list(equalities(node.predicate())), list(not_nulls(node.predicate()))
        return tuple(column.with_equal(pairs).without_null(filled) for column in part.key)
    if kind == "SubqueryAlias":
        names = dict(zip(before, _names(node), strict=True))
    else:
        names = {name: name for name in before if name in _names(node)}
    return tuple(column.rename(names) for column in part.key)


def _check_projection(
    node: Any, plan: LogicalPlan, parts: Sequence[PartitionedPlan], tables: tuple[str, ...]
) -> Key:
    outputs = list(zip(_names(node), node.projections(), strict=True))
    return tuple(column.project(outputs) for column in parts[0].key)


def _check_aggregate(
    node: Any, plan: LogicalPlan, parts: Sequence[PartitionedPlan], tables: tuple[str, ...]
) -> Key:
    groups, key = node.group_by_exprs(), parts[0].key
    if not groups:
        raise NotCopartitionedError(
            f"aggregates all rows to one, and would do so for each partition; {_LATER}"
        )
    names = ", ".join(expr_text(expr) for expr in groups)
    if any(expr.variant_name() == "GroupingSet" for expr in groups):
        return _check_grouping_sets(node, names, key)
    if not all(column.determined_by(groups) for column in key):
        does = "groups by" if node.aggregate_exprs() else "looks for distinct"
        raise NotCopartitionedError(
            f"{does} {names}, which is not the whole key; {_other_key(tables)} these columns, "
            f"{_LATER}"
        )
    outputs = list(zip(_names(node), groups, strict=False))
    return tuple(column.project(outputs) for column in key)


def _check_grouping_sets(node: Any, names: str, key: Key) -> Key:
    if names.startswith(("ROLLUP", "CUBE")):
        raise NotCopartitionedError(f"groups all rows together ({names}); {_LATER}")
    always = {name: name for name in _columns_of_all(node.group_by_exprs(), _names(node))}
    kept = tuple(column.rename(always) for column in key)
    if not all(column.equal for column in kept):
        raise NotCopartitionedError(
            f"groups by sets of which some lack a part of the key ({names}); add it to each of "
            f"them, {_LATER}"
        )
    return kept


def _other_key(tables: Sequence[str]) -> str:
    return f"set {' and '.join(f'inputs.{table}.key' for table in tables)} to"


def _check_window(
    node: Any, plan: LogicalPlan, parts: Sequence[PartitionedPlan], tables: tuple[str, ...]
) -> Key:
    for window in node.get_window_expr():
        by = node.get_partition_exprs(window)
        if not all(column.determined_by(by) for column in parts[0].key):
            names = ", ".join(expr_text(expr) for expr in by)
            does = f"by {names}, which is not the whole key" if by else "over all rows"
            raise NotCopartitionedError(
                f"uses a window {does}; add the key to its partition by, {_other_key(tables)} "
                f"these columns, {_LATER}"
            )
    return _key_after(node, "WindowExpr", plan, parts[0])


def _check_limit(
    node: Any, plan: LogicalPlan, parts: Sequence[PartitionedPlan], tables: tuple[str, ...]
) -> Key:
    raise NotCopartitionedError(f"limits the rows, and would do so for each partition; {_LATER}")


def _check_sort(
    node: Any, plan: LogicalPlan, parts: Sequence[PartitionedPlan], tables: tuple[str, ...]
) -> Key:
    if node.get_fetch_val() is not None:
        return _check_limit(node, plan, parts, tables)
    return parts[0].key


def _check_union(
    node: Any, plan: LogicalPlan, parts: Sequence[PartitionedPlan], tables: tuple[str, ...]
) -> Key:
    if any(not part.tables and part.has_any for part in parts):
        raise NotCopartitionedError(
            "adds rows that every partition has, once for each; add them in a stage after it, "
            f"{OR_ONE_PARTITION}"
        )
    out, keys = _names(node), []
    for each, part in zip(plan.inputs(), parts, strict=True):
        names = dict(zip(_names(each.to_variant()), out, strict=False))
        if part.tables:
            keys.append([column.rename(names) for column in part.key])
    return tuple(_key_of_union(columns) for columns in zip(*keys, strict=True))


def _key_of_union(columns: Sequence[KeyColumn]) -> KeyColumn:
    """Return the column for the rows of several tables; it has no columns if their types differ."""
    kind = columns[0].kind
    if not all(joinable(kind, column.kind) for column in columns):
        return KeyColumn(kind, frozenset(), frozenset())
    equal = frozenset.intersection(*(column.equal for column in columns))
    or_null = frozenset.intersection(*(column.or_null for column in columns))
    has_null = any(column.has_null for column in columns)
    return KeyColumn(kind, equal - {CONSTANT}, or_null, has_null)


_CHECKS: dict[
    str, Callable[[Any, LogicalPlan, Sequence[PartitionedPlan], tuple[str, ...]], Key]
] = {
    "Aggregate": _check_aggregate,
    "Join": check_join,
    "Limit": _check_limit,
    "Projection": _check_projection,
    "Sort": _check_sort,
    "Union": _check_union,
    "WindowExpr": _check_window,
}


def _in_subquery(plan: LogicalPlan, whole: Collection[str]) -> str | None:
    """Return a partitioned table that a subquery in an expression reads.

    Only the plan's text shows such a subquery.
    """
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
    """Return the names of the columns that a node outputs."""
    return list(node.schema().field_names()) if hasattr(node, "schema") else []


_BEGIN, _BETWEEN, _END = "GROUPING SETS ((", "), (", "))"


def _columns_of_all(groups: Sequence[Expr], names: Sequence[str]) -> frozenset[str]:
    """Return the columns that are in each grouping set; ``names`` are the columns of the aggregate.

    Only the text of the sets is known. Return no column if the text is ambiguous.
    """
    text = groups[0].canonical_name() if len(groups) == 1 else ""
    columns = names[: names.index("__grouping_id")] if "__grouping_id" in names else []
    is_clear = text.startswith(_BEGIN) and text.endswith(_END)
    if not is_clear or any(sign in name for name in columns for sign in "(),"):
        return frozenset()
    sets = [frozenset(each.split(", ")) for each in text[len(_BEGIN) : -len(_END)].split(_BETWEEN)]
    if any(not each <= set(columns) for each in sets):
        return frozenset()
    return frozenset.intersection(*sets)
