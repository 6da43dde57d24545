"""Decides by the smallest and largest values of columns whether some rows can be in a result.

A null bound is not known. Bounds do not tell of nulls, and a row whose condition is null is not in
the result. Floats have no bounds here: the statistics of files leave out NaN, which DataFusion
orders after all numbers, or before them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import reduce
from operator import and_, ge, gt, le, lt, or_
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mrflight.compute.sql.engine import quoted

if TYPE_CHECKING:
    from datafusion import Expr

_SMALLEST, _LARGEST = "smallest ", "largest "
"""The names of the bounds of a column in a table of bounds begin with these."""

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}

_COMPARED: dict[str, Callable[[Any, Any], Any]] = {"<": lt, "<=": le, ">": gt, ">=": ge}


def has_bounds(kind: pa.DataType) -> bool:
    """Return whether the smallest and the largest value of a type bound all of its values."""
    types = pa.types
    is_exact_time = types.is_timestamp(kind) and kind.unit != "ns"  # Python's have microseconds
    return (
        is_exact_time
        or types.is_integer(kind)
        or types.is_boolean(kind)
        or types.is_date32(kind)
        or types.is_decimal(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
    )


def bounds_table(
    bounds: Sequence[Mapping[str, tuple[Any, Any]]], columns: Mapping[str, pa.DataType]
) -> pa.RecordBatch:
    """Return a row for each file, or part of one, with the bounds of its columns."""
    arrays, names = [], []
    for name, kind in columns.items():
        pairs = [each.get(name, (None, None)) for each in bounds]
        for prefix, side in ((_SMALLEST, 0), (_LARGEST, 1)):
            arrays.append(_typed([pair[side] for pair in pairs], kind))
            names.append(f"{prefix}{name}")
    return pa.RecordBatch.from_arrays(arrays, names)


def _typed(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return the values as an array; none is known if a file has another type."""
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.nulls(len(values), kind)


def bounded_columns(condition: Any) -> set[str]:
    """Return the columns whose bounds decide whether a condition can be true."""
    if condition.variant_name() == "BinaryExpr" and condition.rex_call_operator() in ("AND", "OR"):
        return set().union(*map(bounded_columns, condition.rex_call_operands()))
    return {column for column, *_ in _comparisons(condition)}


def conditions_on_bounds(conditions: Iterable[Any], bounds: pa.RecordBatch) -> list[Expr]:
    """Return conditions on a table of bounds: rows can only fulfil the given ones if all hold."""
    from datafusion import functions, lit

    known = {name.removeprefix(_SMALLEST) for name in bounds.schema.names}
    found = [_can_be_true(condition, known) for condition in conditions]
    return [functions.coalesce(each, lit(True)) for each in found if each is not None]


def _can_be_true(condition: Any, columns: Collection[str]) -> Expr | None:
    """Return a condition on bounds that is false if no row can fulfil ``condition``.

    Returns None if the bounds of these columns do not tell.
    """
    operator = condition.rex_call_operator() if condition.variant_name() == "BinaryExpr" else ""
    if operator in ("AND", "OR"):
        parts = [_can_be_true(part, columns) for part in condition.rex_call_operands()]
        known = [part for part in parts if part is not None]
        if not known or (operator == "OR" and len(known) < len(parts)):
            return None
        return reduce(and_ if operator == "AND" else or_, known)
    found = _comparisons(condition)
    if not found or any(column not in columns for column, *_ in found):
        return None
    return reduce(or_, (_in_bounds(*each) for each in found))


def _comparisons(condition: Any) -> list[tuple[str, str, Expr]]:
    """Return comparisons of a column with a value, of which one has to be true; else none."""
    from datafusion import Expr

    kind = condition.variant_name()
    if kind == "InList" and not condition.to_variant().negated():
        first, *values = condition.rex_call_operands()
        pairs = [(first, "=", value) for value in values]
    elif kind == "BinaryExpr" and (operator := condition.rex_call_operator()) in _MIRRORED:
        left, right = condition.rex_call_operands()
        pairs = [(left, operator, right)]
        if left.variant_name() == "Literal":
            pairs = [(right, _MIRRORED[operator], left)]
    else:
        return []
    if any((a.variant_name(), b.variant_name()) != ("Column", "Literal") for a, _, b in pairs):
        return []
    return [(a.to_variant().name(), operator, Expr(b)) for a, operator, b in pairs]


def _in_bounds(column: str, operator: str, value: Expr) -> Expr:
    from datafusion import Expr

    smallest, largest = (Expr.column(quoted(f"{each}{column}")) for each in (_SMALLEST, _LARGEST))
    if operator == "=":
        return (smallest <= value) & (largest >= value)
    return _COMPARED[operator](smallest if operator.startswith("<") else largest, value)
