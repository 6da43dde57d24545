"""Expressions over the columns of a row: SQL texts, and expressions of DataFusion.

An expression of DataFusion travels as bytes, in a text like that of a pickled function, because its
own SQL would change the types of literals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mrflight.compute.sql.engine import quoted
from mrflight.compute.sql.plans import PURE
from mrflight.config.pickled_functions import load_pickled, pickle_object, split_pickled
from mrflight.errors import JobFileError

if TYPE_CHECKING:
    from datafusion import DataFrame, Expr

_OF_A_ROW = PURE | {"Alias", "Case", "IsNotUnknown", "IsUnknown", "RLike", "ScalarFunction"}
"""The kinds of expressions that have one value for each row, which follows from that row."""

_OF_SEVERAL_ROWS = {
    "AggregateFunction": "aggregates rows",
    "WindowFunction": "uses a window over several rows",
    "Exists": "has a subquery over other rows",
    "InSubquery": "has a subquery over other rows",
    "ScalarSubquery": "has a subquery over other rows",
    "SetComparison": "has a subquery over other rows",
    "Unnest": "makes several rows of one",
}
"""What other kinds do."""

_INSTEAD = {
    "AggregateFunction": "; aggregate in a reduce: group_by and agg",
    "Unnest": "; use a query: select unnest(...)",
}


def pickle_expression(expression: object, call: str) -> str:
    """Return the text of an expression of DataFusion; JobFileError if it is not of one row.

    Raises UserFunctionError for a function of the user that cannot be pickled.
    """
    from datafusion import Expr

    if not isinstance(expression, Expr):
        kind = type(expression).__name__
        raise JobFileError(f"{call}: a {kind} is not an expression of a row")
    shown = expression.canonical_name()
    check_row_wise(expression, call, shown)
    return pickle_object(expression, shown, call)


def parse_expression(rows: DataFrame, text: str, call: str) -> Expr:
    """Return the expression over the columns of ``rows``; a column's name is that column.

    Raises JobFileError if it is not of one row, and what DataFusion raises.
    """
    if (parts := split_pickled(text)) is not None:
        expression: Expr = load_pickled(parts[1])
        return expression
    if text in rows.schema().names:
        return column(text)
    expression = rows.parse_sql_expr(text)
    check_row_wise(expression, call, text)
    return expression


def column(name: str) -> Expr:
    """Return the column with exactly this name."""
    from datafusion import Expr

    return Expr.column(quoted(name))


def check_row_wise(expression: Expr, call: str, shown: str) -> None:
    """Raise JobFileError if the value of an expression may depend on other rows."""
    kind = expression.variant_name()
    if kind not in _OF_A_ROW:
        does = _OF_SEVERAL_ROWS.get(kind, f"is of a kind that is not supported, {kind}")
        raise JobFileError(
            f"{call}: sees one row at a time, but {shown!r} {does}{_INSTEAD.get(kind, '')}"
        )
    if kind not in ("Column", "Literal"):
        for operand in expression.rex_call_operands():
            check_row_wise(operand, call, shown)
