"""Checks that a join in SQL only matches rows of the same partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from mrflight.compute.join_types import joinable
from mrflight.compute.sql.key_columns import (
    CONSTANT,
    OR_ONE_PARTITION,
    Key,
    KeyColumn,
    NotCopartitionedError,
    PartitionedPlan,
    expr_text,
)
from mrflight.compute.sql.plans import is_null_aware

if TYPE_CHECKING:
    from datafusion import Expr, LogicalPlan

_KEEPING = {side: {side, f"{side}Semi", f"{side}Anti", f"{side}Mark"} for side in ("Left", "Right")}
"""By side: the joins that return no unmatched row of the other side."""


def check_join(
    node: Any, plan: LogicalPlan, parts: Sequence[PartitionedPlan], tables: tuple[str, ...]
) -> Key:
    """Return the key of the rows of a join with at least one partitioned side.

    Raises NotCopartitionedError if rows of different partitions may match.
    """
    left, right = parts
    how, pairs = str(node.join_type()), list(node.on())
    if left.tables and right.tables:
        return _check_keyed_join(node, plan, left.key, right.key, tables)
    key, side = (left.key, "Left") if left.tables else (right.key, "Right")
    found = tuple(column.with_equal(pairs) for column in key)
    if how == "Inner":
        return found
    if how in _KEEPING[side]:
        return key
    matched = [column.equal - old.equal for column, old in zip(found, key, strict=True)]
    if how in ("LeftSemi", "RightSemi") and all(matched):
        # Each row of the result matches rows of one partition.
        return tuple(
            replace(column, equal=equal, or_null=column.or_null - old.or_null)
            for column, old, equal in zip(found, key, matched, strict=True)
        )
    raise NotCopartitionedError(
        "keeps unmatched rows of a broadcast input, which no task knows alone; give that input a "
        f"key instead of broadcast, {OR_ONE_PARTITION}"
    )


def _check_keyed_join(
    node: Any, plan: LogicalPlan, left: Key, right: Key, tables: tuple[str, ...]
) -> Key:
    how, pairs = str(node.join_type()), list(node.on())
    columns = list(zip(left, right, strict=True))
    _check_same_partition(columns, pairs, node.null_equals_null(), tables)
    if is_null_aware(plan) and not all(_allows_not_in(*both, pairs) for both in columns):
        raise NotCopartitionedError(
            "uses not in, which returns nothing if the subquery has a null anywhere; write not "
            f"exists, or add `is not null` for both sides' keys, {OR_ONE_PARTITION}"
        )
    is_matched = how in ("Inner", "LeftSemi", "RightSemi") and not node.null_equals_null()
    filled = [expr for pair in pairs for expr in pair] if is_matched else []
    for side, key in (("Left", left), ("Right", right)):
        if how in _KEEPING[side] - {side}:
            return tuple(column.without_null(filled) for column in key)
    return tuple(_matched_key(how, ours, theirs, filled) for ours, theirs in columns)


def _check_same_partition(
    columns: Sequence[tuple[KeyColumn, KeyColumn]],
    pairs: Sequence[tuple[Expr, Expr]],
    also_by_null: bool,
    tables: tuple[str, ...],
) -> None:
    """Raise NotCopartitionedError if rows that match may be in different partitions."""
    equal = " and ".join(f"{expr_text(one)} = {expr_text(other)}" for one, other in pairs)
    for ours, theirs in columns:
        if not joinable(ours.kind, theirs.kind):
            raise NotCopartitionedError(
                f"joins {' with '.join(tables)}, whose keys are {ours.kind} and {theirs.kind}, so "
                "equal keys are in different partitions; cast one to the type of the other in a "
                f"map or sql, {OR_ONE_PARTITION}"
            )
        by_pair = any(
            ours.matched_by(one, also_by_null=also_by_null)
            and theirs.matched_by(other, also_by_null=also_by_null)
            for one, other in pairs
        )
        if not (by_pair or ours.is_same_constant(theirs)):
            does = f"by {equal}, which are not their keys" if pairs else "without an equality"
            raise NotCopartitionedError(
                f"joins {' with '.join(tables)} {does}; join them by all columns of "
                "inputs.*.key in their order, set other keys, set broadcast for a small "
                f"input, {OR_ONE_PARTITION}"
            )


def _allows_not_in(ours: KeyColumn, theirs: KeyColumn, pairs: Sequence[tuple[Expr, Expr]]) -> bool:
    """Return whether `not in` can be answered by partition.

    A null on either side changes the answer for all partitions.
    """
    if ours.is_same_constant(theirs):
        return True
    is_of_values = all(
        ours.matched_by(one, also_by_null=True) and theirs.matched_by(other, also_by_null=True)
        for one, other in pairs
    )
    return is_of_values and not ours.has_null and not theirs.has_null


def _matched_key(how: str, ours: KeyColumn, theirs: KeyColumn, filled: Sequence[Expr]) -> KeyColumn:
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
