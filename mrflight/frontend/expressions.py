"""Expressions over columns, as the methods of a `Dataset` take them."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mrflight.config.pickled_functions import shown_text
from mrflight.config.row_steps import NamedExpression
from mrflight.errors import JobFileError

if TYPE_CHECKING:
    from datafusion import Expr

    Expression = str | Expr
else:
    Expression = Any  # DataFusion is loaded when it is used


def col(name: str) -> Any:
    """Return the column of exactly this name as an expression of DataFusion.

    ``datafusion.col`` makes names lower case that are not quoted. Needs ``mrflight[sql]``.
    """
    from mrflight.compute.sql.engine import import_datafusion, quoted

    return import_datafusion("col").col(quoted(name))


def lit(value: object) -> Any:
    """Return a value as an expression of DataFusion, as ``datafusion.lit`` does.

    Needs ``mrflight[sql]``.
    """
    from mrflight.compute.sql.engine import import_datafusion

    return import_datafusion("lit").lit(value)


def expression_text(value: object, method: str) -> str:
    """Return the text of an argument; JobFileError if it is no expression of one row."""
    if isinstance(value, str) and value.strip():
        return value
    if type(value).__module__.startswith("datafusion."):
        from mrflight.compute.sql.expressions import pickle_expression

        return pickle_expression(value, method)
    raise JobFileError(
        f"{method}: {reprlib.repr(value)} is neither SQL text nor an expression of DataFusion; "
        f'write {method}("weight > 3"), or {method}(mrflight.col("weight") > 3)'
    )


def named_expressions(
    given: Iterable[object], named: Mapping[str, object], method: str
) -> tuple[NamedExpression, ...]:
    """Return the expressions of arguments: single ones, lists, and mappings by name."""
    found = (*_flat(given, method), *_flat([named], method))
    if not found:
        raise JobFileError(f'{method} needs a column; write {method}("url", total="price * n")')
    return found


def _flat(given: Iterable[object], method: str) -> Iterator[NamedExpression]:
    for each in given:
        if isinstance(each, Mapping):
            for name, value in each.items():
                yield NamedExpression(expression_text(value, method), name)
        elif isinstance(each, list | tuple):
            yield from _flat(each, method)
        else:
            yield NamedExpression(expression_text(each, method))


def describe_call(method: str, expressions: Iterable[NamedExpression]) -> str:
    """Return a call as it is written in Python, for messages and the plan."""
    return f"{method}({', '.join(map(_described, expressions))})"


def _described(each: NamedExpression) -> str:
    shown = shown_text(each.text)
    text = shown if shown != each.text else json.dumps(shown, ensure_ascii=False)
    return text if each.name is None else f"{each.name}={text}"
