"""Queries in Python: ``mrflight.sql``."""

from __future__ import annotations

from msgspec.structs import replace

from mrflight.errors import JobFileError
from mrflight.frontend.clear_errors import clear_errors
from mrflight.frontend.dataset import Dataset, _merged_settings
from mrflight.frontend.dataset_builder import InputBuilder, StageBuilder, name_of_files
from mrflight.frontend.read import ArrowStream, read


@clear_errors
def sql(query: str, /, **tables: Dataset | ArrowStream) -> Dataset:
    """Return the rows of a query over tables, as a dataset.

    Each of the ``tables`` is called by its keyword in the query, and is a dataset, or a table in
    memory that `read` takes. A text in the query where a table is expected is a path that `read`
    takes: ``select count(*) from 'visits/*.parquet'``; a word before it may be its format, as in
    ``from delta.'s3://bucket/visits'``. Before the query, ``create view NAME as select ...;`` may
    name others. Mistakes are reported when the rows are asked for.
    """
    if not isinstance(query, str):
        raise JobFileError(f"sql: the query must be a text, not {type(query).__name__}")
    from mrflight.compute.sql.statements import named_paths

    text, paths = named_paths(query, name_of_files, tables)
    given = {name: _dataset(table) for name, table in tables.items()}
    for each in paths:
        rows = read(each.path, name=each.name)
        given[each.name] = rows if each.format is None else rows._with_options(format=each.format)
    inputs = tuple(_named(table, name) for name, table in given.items())
    stage = StageBuilder("query", inputs, {}, query=text)
    return Dataset(_stage=stage, _settings=_merged_settings(*given.values()))


def _dataset(table: Dataset | ArrowStream) -> Dataset:
    return table if isinstance(table, Dataset) else read(table)


def _named(table: Dataset, name: str) -> InputBuilder:
    """Return the rows as an input of this name."""
    return replace(table._as_one_input(), name=name)
