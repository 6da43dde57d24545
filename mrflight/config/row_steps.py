"""The steps that map the rows of an input one after the other, each row by itself.

The methods of a `Dataset` write them into `InputSpec.steps`. The fields cannot be changed, so that
plans can be cached by them.
"""

from __future__ import annotations

import msgspec


class NamedExpression(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An expression whose values become a column."""

    text: str
    """The name of a column, an SQL expression, or a pickled expression of DataFusion."""
    name: str | None = None
    """The column's name; by default that of the column or the alias, or else the text."""


class _Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    call: str
    """The call that made the step, or the key of the job file that has it, for messages."""
    table: str
    """The name that the rows had in this step."""


class Filter(_Step, frozen=True, tag="filter"):
    """Keeps the rows for which all conditions are true."""

    conditions: tuple[str, ...]


class Select(_Step, frozen=True, tag="select"):
    """Makes the rows of these columns only."""

    columns: tuple[NamedExpression, ...]


class WithColumns(_Step, frozen=True, tag="with_columns"):
    """Adds columns, or replaces those that have the same name."""

    columns: tuple[NamedExpression, ...]


class Rename(_Step, frozen=True, tag="rename"):
    """Renames columns, and keeps their order."""

    names: tuple[tuple[str, str], ...]
    """Old and new names."""


class Drop(_Step, frozen=True, tag="drop"):
    """Leaves out columns."""

    columns: tuple[str, ...]


class Compute(_Step, frozen=True, tag="compute"):
    """Adds the values of an expression as a column with its text as a name, if there is none yet.

    Its integers have 64 bits, however narrow the columns are.
    """

    text: str


class Query(_Step, frozen=True, tag="sql"):
    """Maps the rows by a query of its own."""

    text: str


class Call(_Step, frozen=True, tag="map"):
    """Maps the rows by a function."""

    function: str
    """``module:function``, or a pickled callable."""


ExpressionStep = Filter | Select | WithColumns | Rename | Drop | Compute
"""The steps that are made of expressions. Several in a row are one query."""

RowStep = ExpressionStep | Query | Call
