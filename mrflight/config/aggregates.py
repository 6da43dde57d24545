"""The aggregates of a job file: their names, and what a text such as ``sum(weight)`` asks for.

aggregate = { clicks = "sum(weight)", rows = "count(*)", last_seen = "max(at)" }
"""

from __future__ import annotations

import math
import re
from typing import Literal, NamedTuple, get_args

from mrflight.errors import JobFileError

AggregateFunction = Literal[
    "sum",
    "min",
    "max",
    "count",
    "mean",
    "count_distinct",
    "first",
    "last",
    "var",
    "var_pop",
    "stddev",
    "stddev_pop",
    "median",
    "quantile",
    "approx_median",
    "approx_quantile",
    "bool_and",
    "bool_or",
]
FUNCTIONS: tuple[str, ...] = get_args(AggregateFunction)

SYNONYMS = {
    "avg": "mean",
    "any_value": "first",
    "std": "stddev",
    "stddev_samp": "stddev",
    "variance": "var",
    "var_samp": "var",
    "quantile_cont": "quantile",
}
"""Other names that SQL, Polars or pandas have for these functions."""

VARIANCES = ("var", "var_pop", "stddev", "stddev_pop")
QUANTILES = ("median", "quantile")
APPROXIMATIONS = ("approx_median", "approx_quantile")
COUNTS = ("count", "count_distinct")
"""The functions whose result for no values is 0 rather than null."""
UNCOMBINED = ("count_distinct", *QUANTILES)
"""The functions whose results for parts of a group cannot be combined, whatever the column."""
_WITH_FRACTION = ("quantile", "approx_quantile")

_CALL = re.compile(r"\s*([A-Za-z_]\w*)\s*\(\s*(.+?)\s*\)\s*", re.DOTALL)
_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_QUOTED = re.compile(r'"((?:[^"]|"")+)"')
_DISTINCT = re.compile(r"distinct\s+(.+)", re.DOTALL | re.IGNORECASE)


class Aggregate(NamedTuple):
    """One output column: ``name = function(column)``; column None is ``count(*)``.

    An expression is computed before the shuffle, as a column that has its text as a name.

    Every function but ``count(*)`` ignores nulls. For a group without values a count is 0, and the
    other functions return null. ``first`` and ``last`` use the order of the input.
    """

    name: str
    function: AggregateFunction
    column: str | None
    fraction: float = 0.5
    """Which quantile; other functions do not use it."""
    may_be_expression: bool = False
    """True if the column is an expression to compute, unless there is a column of that name."""

    @property
    def is_count(self) -> bool:
        """True if the result for no values is 0 rather than null."""
        return self.function in COUNTS

    @property
    def needs_all_rows(self) -> bool:
        """True if results of parts of a group cannot be combined, whatever the column."""
        return self.function in UNCOMBINED


def parse_aggregate(name: str, text: str) -> Aggregate:
    """Parse an aggregate such as ``sum(weight)``. The JobFileError lists the functions."""
    match = _CALL.fullmatch(text)
    function, column = (match[1].lower(), match[2]) if match else ("", "")
    function = SYNONYMS.get(function, function)
    if function == "count" and (distinct := _DISTINCT.fullmatch(column)):
        function, column = "count_distinct", distinct[1]
    is_star = column == "*"
    if function not in FUNCTIONS or (is_star and function != "count"):
        raise _no_aggregate(name, text, function)
    fraction = 0.5
    if function in _WITH_FRACTION:
        column, fraction = _split_fraction(name, text, column)
    quoted = _QUOTED.fullmatch(column)
    may_be_expression = not (is_star or quoted or _IDENTIFIER.fullmatch(column))
    column = quoted[1].replace('""', '"') if quoted else column
    return Aggregate(name, function, None if is_star else column, fraction, may_be_expression)  # type: ignore[arg-type]


def _no_aggregate(name: str, text: str, function: str) -> JobFileError:
    import difflib  # for few processes

    known = (*FUNCTIONS, *SYNONYMS)
    near = difflib.get_close_matches(function, known, n=1)
    hint = f"did you mean {near[0]}? Write" if near and near[0] != function else "write"
    return JobFileError(
        f"reduce.aggregate.{name}: {text!r} is not an aggregate; {hint} 'function(column)' "
        f"with one of {', '.join(known)}, or count(*)"
    )


def may_have_expression(text: str) -> bool:
    """Return whether an aggregate may have an expression to compute; False if it is wrong."""
    try:
        return parse_aggregate("", text).may_be_expression
    except JobFileError:
        return False


def _split_fraction(name: str, text: str, arguments: str) -> tuple[str, float]:
    """Return the column and the fraction of a quantile."""
    column, comma, last = arguments.rpartition(",")
    try:
        fraction = float(last)
    except ValueError:
        fraction = math.nan
    if not comma or not column.strip() or not 0 <= fraction <= 1:
        raise JobFileError(
            f"reduce.aggregate.{name}: {text!r} needs a column and a fraction from 0 to 1: "
            "'quantile(column, 0.9)'"
        )
    return column.strip(), fraction
