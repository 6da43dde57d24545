"""Finds, around a join, the exchanges of whose rows only those matter that have certain keys.

A row with a key that no row of the other side has is of no use for most joins. The same holds for
the rows that this row was made of, down to the exchange by which they came, if the key was among
their columns, and by whose hash they were distributed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from mrflight.compute.sql.physical import plan_fields as of
from mrflight.compute.sql.physical.nodes import Node
from mrflight.compute.sql.physical.protobuf import (
    number_of,
    numbers_of,
    only_field,
    values_of,
)

Columns = tuple[int, ...]

_LEFT_ONLY = ("LeftSemi", "LeftAnti", "LeftMark")
_RIGHT_ONLY = ("RightSemi", "RightAnti", "RightMark")


class KeyedExchange(NamedTuple):
    """A repartition by the hash of a key."""

    node: Node
    has_all_keys: bool
    """True if all keys that leave the node above are among those of its rows."""


def join_keys(join: Node) -> tuple[Columns, Columns] | None:
    """Return the columns of both sides that a hash join compares; None if they are not plain."""
    if join.kind != "HashJoinExec":
        return None
    pairs = values_of(only_field(join.encoded)[1], of.JOIN_ON)
    left = plain_columns(value for pair in pairs for value in values_of(pair, of.JOIN_LEFT))
    right = plain_columns(value for pair in pairs for value in values_of(pair, of.JOIN_RIGHT))
    return (left, right) if left and right else None


def exchanges_by(node: Node, columns: Columns) -> Iterator[KeyedExchange]:
    """Yield the exchanges at or below a node whose key becomes these columns of its rows.

    Rows of the exchanges with other keys do not change the node's rows with these keys.
    """
    if node.kind == "RepartitionExec":
        if node.hash_columns == columns:
            yield KeyedExchange(node, has_all_keys=True)
    elif node.kind == "HashJoinExec":
        yield from _below_join(node, projected(node, columns))
    elif (below := _below(node, columns)) is not None:
        yield from exchanges_by(node.children[0], below)


def _below(node: Node, columns: Columns) -> Columns | None:
    """Return the columns of the child that are these columns of a node; None if there are none."""
    if node.kind == "FilterExec":
        return projected(node, columns)
    message = only_field(node.encoded)[1]
    if node.kind == "ProjectionExec":
        made = values_of(message, of.PROJECTION_EXPRESSIONS)
    elif node.kind == "AggregateExec" and node.needs_keys_together:
        made = values_of(message, of.GROUPS)
    else:
        return None
    if max(columns) >= len(made):
        return None
    return plain_columns(made[column] for column in columns)


def _below_join(join: Node, columns: Columns) -> Iterator[KeyedExchange]:
    """Yield the exchanges below a join, by columns of its rows before they are projected."""
    if not join.is_partitioned_join or (keys := join_keys(join)) is None:
        return
    (left, right), (left_keys, right_keys) = join.children, keys
    kind = join.join_type
    is_matched = kind in ("Inner", "LeftSemi", "RightSemi")
    if kind in _RIGHT_ONLY:
        yield from exchanges_by(right, columns)
        if columns == right_keys:
            yield from _with(exchanges_by(left, left_keys), is_matched)
    elif kind in _LEFT_ONLY or (kind in ("Inner", "Left") and columns == left_keys):
        yield from exchanges_by(left, columns)
        if columns == left_keys:
            yield from _with(exchanges_by(right, right_keys), is_matched)


def _with(found: Iterator[KeyedExchange], has_all_keys: bool) -> Iterator[KeyedExchange]:
    return (each._replace(has_all_keys=each.has_all_keys and has_all_keys) for each in found)


def projected(node: Node, columns: Columns) -> Columns:
    """Return which columns of a node's rows before its projection are these columns after it."""
    chosen = numbers_of(only_field(node.encoded)[1], of.CHOSEN_COLUMNS)
    return tuple(chosen[column] for column in columns) if chosen else columns


def plain_columns(expressions: Iterable[bytes]) -> Columns | None:
    """Return the positions of columns; None if an expression is anything else."""
    found = [values_of(each, of.COLUMN) for each in expressions]
    if not all(found):
        return None
    return tuple(number_of(column, of.COLUMN_POSITION) for column, *_ in found)


def is_having(node: Node) -> bool:
    """Return whether a node keeps few of the groups of an aggregate, as ``having`` does."""
    while node.kind == "ProjectionExec":
        (node,) = node.children
    if node.kind != "FilterExec":
        return False
    (below,) = node.children
    return below.kind == "AggregateExec" and below.needs_keys_together
