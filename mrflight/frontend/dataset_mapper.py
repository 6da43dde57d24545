"""Maps the rows of a dataset, each by itself: by conditions, columns, and functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from mrflight.config.keyword_options import Names
from mrflight.config.pickled_functions import function_text, shown_text
from mrflight.config.row_steps import (
    Call,
    Drop,
    Filter,
    NamedExpression,
    Query,
    Rename,
    RowStep,
    Select,
    WithColumns,
)
from mrflight.errors import JobFileError
from mrflight.frontend.clear_errors import with_clear_errors
from mrflight.frontend.dataset_builder import InputBuilder
from mrflight.frontend.dataset_writer import all_names_of
from mrflight.frontend.expressions import (
    Expression,
    describe_call,
    expression_text,
    named_expressions,
)

Function = Callable[..., Any] | str
"""A callable, which is pickled at once, or ``module:function`` in the current folder."""

Columns = Expression | Sequence[Expression] | Mapping[str, Expression]
"""One expression, several, or some by the names of their columns."""


@with_clear_errors
class DatasetMapper(ABC):
    """The methods of a `Dataset` that map its rows, each by itself, without a shuffle.

    An expression is SQL text, or an expression of DataFusion: see `mrflight.col`. A text that is
    the name of a column is that column. Several steps in a row are planned as one query, which
    reads no more columns and files than it needs.
    """

    def map(self, function: Function) -> Self:
        """Apply ``function(pyarrow.RecordBatch)`` to each batch, after the maps before it.

        If the hint of its first parameter is a Polars or pandas DataFrame, or a Table of pyarrow,
        it takes that; it may return any of these.
        Raises UserFunctionError if the callable cannot be pickled.
        """
        text = function_text(function, "map")
        inputs = self._as_inputs()
        if not inputs[0].is_mapped:
            return self._with_inputs(tuple(each.with_options(map=text) for each in inputs))
        call = f"map({shown_text(text)})"
        return self._add_step(Call(call=call, table=inputs[0].name, function=text))

    def filter(self, *conditions: Expression) -> Self:
        """Keep the rows for which all conditions are true: ``"weight > 3 and url like 'a%'"``.

        A null is not true. After `group_by` and its like, the conditions are about their result.
        """
        if not conditions:
            raise JobFileError('filter needs a condition; write filter("weight > 3")')
        texts = tuple(expression_text(each, "filter") for each in conditions)
        shown = describe_call("filter", map(NamedExpression, texts))
        return self._add_step(Filter(call=shown, table=self._table, conditions=texts))

    def select(self, *columns: Columns, **named: Expression) -> Self:
        """Make the rows of these columns only: ``select("url", total="price * n")``.

        A column is named after its keyword or alias, or else after the text. ``"*"`` stands for all
        columns, and a mapping takes names that Python does not allow as keywords.
        """
        found = named_expressions(columns, named, "select")
        return self._add_step(
            Select(call=describe_call("select", found), table=self._table, columns=found)
        )

    def with_columns(self, *columns: Columns, **named: Expression) -> Self:
        """Add columns, or replace those of the same name: ``with_columns(total="price * n")``.

        All expressions see the rows as they were before. See also `select`.
        """
        found = named_expressions(columns, named, "with_columns")
        return self._add_step(
            WithColumns(call=describe_call("with_columns", found), table=self._table, columns=found)
        )

    def rename(self, names: Mapping[str, str] | None = None, /, **named: str) -> Self:
        """Rename columns, from old to new names: ``rename({"url": "address"})``."""
        pairs = tuple({**(names or {}), **named}.items())
        for pair in pairs:
            for name in pair:
                if not isinstance(name, str):
                    raise JobFileError(f"rename: {name!r} is not the name of a column")
        if not pairs:
            raise JobFileError('rename needs old and new names; write rename({"old": "new"})')
        shown = describe_call("rename", (NamedExpression(new, old) for old, new in pairs))
        return self._add_step(Rename(call=shown, table=self._table, names=pairs))

    def drop(self, *columns: Names) -> Self:
        """Leave out columns."""
        names = tuple(all_names_of(columns))
        if not names:
            raise JobFileError('drop needs a column; write drop("url")')
        shown = describe_call("drop", map(NamedExpression, names))
        return self._add_step(Drop(call=shown, table=self._table, columns=names))

    def _query_rows(self, query: str) -> Self:
        """Map the rows by a query over one row at a time."""
        inputs, table = self._as_inputs(), self._table
        if not inputs[0].is_mapped:
            return self._with_inputs(tuple(each.with_sql(query, table) for each in inputs))
        shown = describe_call("sql", [NamedExpression(query)])
        return self._add_step(Query(call=shown, table=table, text=query))

    @property
    def _table(self) -> str:
        """The name of the rows in expressions; that of a union is the one of its first dataset."""
        return self._as_inputs()[0].name

    def _add_step(self, step: RowStep) -> Self:
        return self._with_inputs(tuple(each.with_step(step) for each in self._as_inputs()))

    @abstractmethod
    def _as_inputs(self) -> tuple[InputBuilder, ...]:
        """Return the rows as the inputs of a further stage."""

    @abstractmethod
    def _with_inputs(self, inputs: tuple[InputBuilder, ...]) -> Self:
        """Return the rows of these inputs, which are not shuffled yet."""
