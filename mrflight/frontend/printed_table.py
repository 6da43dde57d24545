"""Prints a few rows as a table that fits the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

import pyarrow as pa
from pyarrow import types
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mrflight.units import format_count

_MAX_CHARACTERS = 32
"""A longer value is shortened."""

_BETWEEN_COLUMNS = 3


def print_table(
    rows: pa.Table, stream: TextIO, *, may_have_more: bool = False, total: int | None = None
) -> None:
    """Print all of the rows, and as many columns as fit; the last line says how many there are.

    ``may_have_more``: the rows are the first ones, and there may be others; ``total``: of so many.
    """
    console = Console(file=stream, highlight=False, soft_wrap=True)
    columns = [_column(field, rows[i]) for i, field in enumerate(rows.schema)]
    shown = _count_fitting([max(map(cell_len, column)) for column in columns], console.width)
    table = Table()
    for field, (name, kind, *_) in zip(rows.schema, columns[:shown], strict=False):
        heading = Text.assemble((name, "bold"), "\n", (kind, "dim"))
        table.add_column(heading, justify="right" if _is_number(field.type) else "left")
    for values in zip(*(column[2:] for column in columns[:shown]), strict=True):
        table.add_row(*map(Text, values))
    # Printed by one call, they are one output in a notebook.
    console.print(table, Text(_summary(rows, shown, may_have_more, total)))


def _summary(rows: pa.Table, shown: int, may_have_more: bool, total: int | None) -> str:
    text = format_count(rows.num_rows, "row")
    if total is not None and total > rows.num_rows:
        text = f"first {rows.num_rows:,} of {format_count(total, 'row')}"
    elif may_have_more:
        text = f"first {text}"
    if hidden := rows.schema.names[shown:]:
        text += f"; {format_count(len(hidden), 'column')} not shown: {', '.join(hidden)}"
    return text


def _column(field: pa.Field, values: pa.ChunkedArray) -> list[str]:
    """Return the texts of a column: its name, its type, and its values."""
    return [_shorten(text) for text in (field.name, str(field.type), *map(_text, values))]


def _text(value: pa.Scalar) -> str:
    return str(value.as_py()) if value.is_valid else "null"


def _shorten(text: str) -> str:
    """Return the text in one line, without control characters that a terminal would obey."""
    line = "".join(each if each.isprintable() else " " for each in text[: _MAX_CHARACTERS + 1])
    return line if len(line) <= _MAX_CHARACTERS else f"{line[: _MAX_CHARACTERS - 1]}…"


def _count_fitting(widths: Sequence[int], width: int) -> int:
    """Return how many columns fit beside each other: at least one, if there is one."""
    used = 1
    for number, each in enumerate(widths):
        used += each + _BETWEEN_COLUMNS
        if used > width:
            return max(1, number)
    return len(widths)


def _is_number(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))
