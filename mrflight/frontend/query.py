"""Queries in Python: ``mrflight.sql``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from mrflight.config.declared_functions import DeclaredFunction, types_of
from mrflight.config.pickled_functions import function_text, name_of
from mrflight.errors import JobFileError
from mrflight.frontend.clear_errors import clear_errors
from mrflight.frontend.dataset import Dataset, _merged_settings
from mrflight.frontend.dataset_builder import InputBuilder, StageBuilder, name_of_files
from mrflight.frontend.read import ArrowStream, read


@clear_errors
def sql(query: str, /, **named: Dataset | ArrowStream | Callable[..., Any]) -> Dataset:
    """Return the rows of a query over tables, as a dataset.

    What is ``named`` has its keyword as its name in the query: a dataset, a table in memory that
    `read` takes, or a function. A function is given an array of pyarrow for each argument and
    returns one of as many values; an aggregate is a class of accumulators. Their hints tell the
    types, or `udf` and `udaf` declare them. A text in the query where a table is expected is a
    path that `read` takes: ``select count(*) from 'visits/*.parquet'``; a word before it may be its
    format, as in ``from delta.'s3://bucket/visits'``. Before the query, ``create view NAME as
    select ...;`` may name others. Mistakes are reported when the rows are asked
    for, but those in types of functions at once.
    """
    if not isinstance(query, str):
        raise JobFileError(f"sql: the query must be a text, not {type(query).__name__}")
    from mrflight.compute.sql.statements import named_paths

    functions = {name: _text_of(each, name) for name, each in named.items() if _is_function(each)}
    tables = {name: each for name, each in named.items() if name not in functions}
    text, paths = named_paths(query, name_of_files, tables)
    given = {name: _dataset(table) for name, table in tables.items()}
    for each in paths:
        rows = read(each.path, name=each.name)
        given[each.name] = rows if each.format is None else rows._with_options(format=each.format)
    inputs = tuple(_named(table, name) for name, table in given.items())
    stage = StageBuilder("query", inputs, {}, query=text, functions=functions)
    return Dataset(_stage=stage, _settings=_merged_settings(*given.values()))


def _is_function(each: object) -> bool:
    return callable(each) and not hasattr(each, "__arrow_c_stream__")


def _text_of(function: Any, name: str) -> str:
    """Return the text of a function with its types: hints may name what is only known here."""
    what = f"sql({name}=...)"
    types = types_of(function, f"{what}: {name_of(function)}")
    if not isinstance(function, DeclaredFunction):
        function = DeclaredFunction(function, types)
    return function_text(function, what)


def _dataset(table: Any) -> Dataset:
    return table if isinstance(table, Dataset) else read(table)


def _named(table: Dataset, name: str) -> InputBuilder:
    """Return the rows as an input of this name."""
    return replace(table._as_one_input(), name=name)
