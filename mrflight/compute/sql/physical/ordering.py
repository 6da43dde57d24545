"""The order of a result in the bytes of its plan, and whether ranges of rows can give it."""

from __future__ import annotations

from typing import NamedTuple

from mrflight.compute.sql.physical import plan_fields as of
from mrflight.compute.sql.physical.nodes import Node
from mrflight.compute.sql.physical.protobuf import number_of, only_field, values_of

_ROW_BY_ROW = ("ProjectionExec", "FilterExec")


class OrderKey(NamedTuple):
    """A column that rows are sorted by."""

    column: int
    """Its position."""
    descending: bool
    nulls_first: bool


def last_merge(root: Node) -> Node | None:
    """Return the merge of sorted rows that gives a result its order; None if there is none.

    One that ends after some rows is none.
    """
    node = root
    while node.kind in _ROW_BY_ROW:
        (node,) = node.children
    is_merge = node.kind == "SortPreservingMergeExec" and "fetch=" not in node.text
    return node if is_merge else None


def unsorted(merge: Node) -> Node:
    """Return what is below a merge, and below the sort of the rows of each partition."""
    (child,) = merge.children
    if child.kind != "SortExec" or "fetch=" in child.text:
        return child
    (below,) = child.children
    return below


def leading_columns(merge: bytes) -> tuple[OrderKey, ...]:
    """Return the first keys of an order, until one is no column but another expression.

    Rows that are equal in these belong together, and are sorted by the others there.
    """
    _, node = only_field(merge)
    keys: list[OrderKey] = []
    for each in values_of(node, of.SORT_KEYS):
        (key,) = values_of(each, of.SORT_KEY)
        (expression,) = values_of(key, of.SORTED)
        if not (column := values_of(expression, of.COLUMN)):
            break
        keys.append(
            OrderKey(
                number_of(column[0], of.COLUMN_POSITION),
                not number_of(key, of.ASCENDING),
                bool(number_of(key, of.NULLS_FIRST)),
            )
        )
    return tuple(keys)
