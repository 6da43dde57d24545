"""Gives rows to users' functions as the type that they ask for, and takes back any of these types.

The hint of the first parameter asks: a `pyarrow.RecordBatch`, a `pyarrow.Table`, or a DataFrame of
Polars or pandas, which are imported only for functions that name or return one.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import pyarrow as pa

from mrflight.errors import UserFunctionError

_TYPES = {
    ("polars", "DataFrame"): "polars",
    ("pandas", "DataFrame"): "pandas",
    ("pyarrow", "Table"): "table",
    ("pyarrow", "RecordBatch"): "batch",
}
"""What a hint asks for, by the package and the name of its type."""

_ALIASES = {"pl": "polars", "pd": "pandas", "pa": "pyarrow"}
"""Usual names of the packages, for hints that are text in a process without their imports."""

RETURNS = "a pyarrow RecordBatch or Table, or a Polars or pandas DataFrame"
"""What functions may return, for messages."""


def name_of_returned(value: object) -> str:
    """Return what a function returned instead of `RETURNS`, for messages."""
    return "None; does it end with return?" if value is None else type(value).__name__


def hinted_type(function: Callable[..., Any], name: str) -> str | None:
    """Return the type that the hint of the first parameter asks for; None if there is no such hint.

    Raises UserFunctionError, which has the ``name`` of the function, if that is not clear.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # functions in C have none
        return None
    hint = parameters[0].annotation if parameters else None
    if isinstance(hint, str):
        return _type_in_text(hint.strip(" '\""), function, name)
    return _known_type(hint)


def as_hinted(rows: Any, wanted: str | None) -> Any:
    """Return a table of any type as the type of `hinted_type`; anything else unchanged.

    Columns of pandas frames have the types of Arrow, so that integers stay integers beside nulls.
    """
    arrow = to_arrow(rows) if wanted is not None else None
    if arrow is None:
        return rows
    if wanted == "polars":
        return import_module("polars").from_arrow(arrow)
    if wanted == "pandas":
        return arrow.to_pandas(types_mapper=import_module("pandas").ArrowDtype)
    return _as_table(arrow) if wanted == "table" else _as_batch(arrow)


def to_arrow(rows: Any) -> pa.RecordBatch | pa.Table | None:
    """Return a table of any type as one of Arrow; None for anything else.

    The index of a pandas frame becomes columns where it has names.
    """
    if isinstance(rows, pa.RecordBatch | pa.Table):
        return rows
    if _is_frame(rows, "polars"):
        return rows.to_arrow()
    if _is_frame(rows, "pandas"):
        if any(name is not None for name in rows.index.names):
            rows = rows.reset_index()
        return pa.Table.from_pandas(rows, preserve_index=False).replace_schema_metadata(None)
    return None


def returned_rows(result: Any, given: pa.Schema) -> pa.RecordBatch | pa.Table | None:
    """Return what a function returned for rows of the schema ``given``; None if it is no table.

    A column without values, whose type the frame does not know, has the type that it was given
    with.
    """
    rows = to_arrow(result)
    if rows is None or rows is result:
        return rows
    for number, field in enumerate(rows.schema):
        if pa.types.is_null(field.type) and given.get_field_index(field.name) >= 0:
            known = given.field(field.name)
            rows = rows.set_column(number, known, rows.column(number).cast(known.type))
    return rows


def to_batches(rows: pa.RecordBatch | pa.Table) -> Sequence[pa.RecordBatch]:
    """Return the rows as few batches: at least one, which is empty if there are no rows."""
    if isinstance(rows, pa.RecordBatch):
        return [rows]
    if rows.num_rows == 0:
        empty = [pa.nulls(0, field.type) for field in rows.schema]
        return [pa.RecordBatch.from_arrays(empty, schema=rows.schema)]
    return rows.combine_chunks().to_batches()


def _as_table(rows: pa.RecordBatch | pa.Table) -> pa.Table:
    return rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])


def _as_batch(rows: pa.RecordBatch | pa.Table) -> pa.RecordBatch:
    first, *others = to_batches(rows)
    if others:
        raise pa.ArrowInvalid("a column has more than 2 GiB, which one RecordBatch cannot hold")
    return first


def _is_frame(value: Any, package: str) -> bool:
    module = sys.modules.get(package)
    return module is not None and isinstance(value, module.DataFrame)


def _type_in_text(hint: str, function: Callable[..., Any], name: str) -> str | None:
    """Return what a hint asks for that ``from __future__ import annotations`` has left as text."""
    prefix, _, last = hint.rpartition(".")
    if not all(part.isidentifier() for part in hint.split(".")):
        return None
    first, *others = hint.split(".")
    value = _globals_of(function).get(first)
    for part in others:
        value = getattr(value, part, None)
    if value is not None:
        return _known_type(value)
    found = _TYPES.get((_ALIASES.get(prefix, prefix), last))
    if found is None and last == "DataFrame":
        raise UserFunctionError(
            f"{name}: the hint {hint!r} of its first parameter is not known in a worker; write "
            "polars.DataFrame or pandas.DataFrame"
        )
    return found


def _known_type(hint: object) -> str | None:
    package = str(getattr(hint, "__module__", "")).partition(".")[0]
    return _TYPES.get((package, getattr(hint, "__name__", "")))


def _globals_of(function: Any) -> Mapping[str, Any]:
    """Return the names that the hints of a callable may use."""
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    if not hasattr(function, "__globals__"):
        function = type(function).__call__
    found: Mapping[str, Any] = getattr(function, "__globals__", {})
    return found
