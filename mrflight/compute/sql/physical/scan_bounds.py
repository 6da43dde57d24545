"""Bounds of a column in a scan, by which it leaves out the row groups that have no such values.

A join needs only rows whose key the other side has. Once the smallest and the largest of these keys
are known, they become a predicate of the scan that the key was read by. Such a predicate leaves out
row groups and pages by their statistics, and no single rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyarrow import types

from mrflight.compute.sql.physical import plan_fields as of
from mrflight.compute.sql.physical.matched_keys import join_keys, plain_columns, projected
from mrflight.compute.sql.physical.nodes import Node
from mrflight.compute.sql.physical.protobuf import (
    encode_field,
    numbers_of,
    only_field,
    values_of,
    with_values,
)
from mrflight.compute.value_ranges import ScanBounds

if TYPE_CHECKING:
    from datafusion import SessionContext

_CARRY_LEFT = ("Inner", "Left", "LeftSemi", "LeftAnti")
_CARRY_RIGHT = ("Inner", "Right", "RightSemi", "RightAnti")
"""The joins whose rows have the columns of a side unchanged, or null in all of them."""


class ScanColumn(msgspec.Struct, frozen=True):
    """A column of the files that a scan reads."""

    scan: bytes
    column: bytes
    """The expression of the column."""


def scanned_column(node: Node, column: int, is_cut: Callable[[Node], bool]) -> ScanColumn | None:
    """Return which column of a Parquet scan a node's column is, unchanged; None if it is none.

    ``is_cut`` tells whether rows are sent to other tasks at a repartition.
    """
    while not node.is_scan:
        if (below := _below(node, column, is_cut)) is None:
            return None
        node, column = below
    if "file_type=parquet" not in node.text:
        return None
    (config,) = values_of(only_field(node.encoded)[1], of.SCAN_CONFIG)
    (projection,) = values_of(config, of.PROJECTION)
    (expression,) = values_of(values_of(projection, of.PROJECTED)[column], of.PROJECTED_EXPRESSION)
    if plain_columns([expression]) is None:
        return None
    return ScanColumn(node.encoded, expression)


def _below(node: Node, column: int, is_cut: Callable[[Node], bool]) -> tuple[Node, int] | None:
    """Return the child and its column that a column of a node is; None if it is computed."""
    if node.kind == "RepartitionExec":
        return None if is_cut(node) else (node.children[0], column)
    if node.kind == "FilterExec":
        (before,) = projected(node, (column,))
        return node.children[0], before
    if node.kind == "ProjectionExec":
        made = values_of(only_field(node.encoded)[1], of.PROJECTION_EXPRESSIONS)
        found = plain_columns(made[column : column + 1])
        return (node.children[0], found[0]) if found else None
    return _below_join(node, column) if node.kind == "HashJoinExec" else None


def _below_join(join: Node, column: int) -> tuple[Node, int] | None:
    left, right = join.children
    (before,) = projected(join, (column,))
    if join.join_type in ("RightSemi", "RightAnti"):
        return right, before
    if (width := _width(left)) is None:
        return None
    if before < width:
        return (left, before) if join.join_type in _CARRY_LEFT else None
    return (right, before - width) if join.join_type in _CARRY_RIGHT else None


def _width(node: Node) -> int | None:
    """Return how many columns the rows of a node have; None if that is not found."""
    message = only_field(node.encoded)[1]
    if node.is_scan:
        (config,) = values_of(message, of.SCAN_CONFIG)
        (projection,) = values_of(config, of.PROJECTION)
        return len(values_of(projection, of.PROJECTED))
    if node.kind == "ProjectionExec":
        return len(values_of(message, of.PROJECTION_EXPRESSIONS))
    if node.kind in ("FilterExec", "HashJoinExec") and (
        chosen := numbers_of(message, of.CHOSEN_COLUMNS)
    ):
        return len(chosen)
    if node.kind in ("RepartitionExec", "FilterExec"):
        return _width(node.children[0])
    return None


def bounded_columns(join: Node, is_cut: Callable[[Node], bool]) -> list[tuple[int, ScanColumn]]:
    """Return columns of a join's left side, and those of scans that need no other values."""
    if not join.drops_unmatched_right or join.matches_nulls or (keys := join_keys(join)) is None:
        return []
    _, right = join.children
    found = (
        (left, scanned_column(right, column, is_cut)) for left, column in zip(*keys, strict=True)
    )
    return [(left, column) for left, column in found if column is not None]


def with_bounds(scan: bytes, bounds: ScanBounds, session: SessionContext) -> bytes:
    """Return a scan that leaves out rows beyond the bounds, where it can do so without a look."""
    kind, node = only_field(scan)
    predicates = [
        *values_of(node, of.SCAN_PREDICATE),
        _binary("GtEq", bounds.column, _literal(bounds.low, session)),
        _binary("LtEq", bounds.column, _literal(bounds.high, session)),
    ]
    return encode_field(kind, with_values(node, of.SCAN_PREDICATE, [_binary("And", *predicates)]))


def _binary(operator: str, *operands: bytes) -> bytes:
    expression = encode_field(of.OPERATOR, operator.encode())
    expression += b"".join(encode_field(of.OPERANDS, each) for each in operands)
    return encode_field(of.BINARY_EXPRESSION, expression)


def _literal(value: pa.Scalar, session: SessionContext) -> bytes:
    """Return the expression of a value, as DataFusion has it for one in a query."""
    name = "Date32" if types.is_date32(value.type) else str(value.type).capitalize()
    name = name.replace("Uint", "UInt")
    text = f"arrow_cast('{value.as_py()}', '{name}')"
    plan = session.sql(f"select {text}").execution_plan().to_bytes(session)
    (literal,) = values_of(only_field(plan)[1], of.PROJECTION_EXPRESSIONS)
    return literal
