"""The options of csv and json inputs: how their text is written."""

from __future__ import annotations

import msgspec


class CsvOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[inputs.NAME.csv]``: the format of csv files."""

    delimiter: str = ","
    header: bool = True
    """False: the first line is data, and the columns are named ``column_names``, or f0, f1, ..."""
    column_names: list[str] | None = None
    newlines_in_values: bool = False
    """True: a quoted value may contain line ends. Such a file is read as one split."""
    quote: str = '"'
    """The character around values; empty if quotes have no meaning. Within, it is doubled."""
    escape: str | None = None
    """The character before one that has no special meaning."""
    null_values: list[str] | None = None
    """The texts that are null; by default those of pyarrow, and no strings."""
    strings_can_be_null: bool | None = None
    """True if strings can be null; by default if there are ``null_values``."""
    decimal: str = "."
    """The character before the fraction of a number."""
    timestamp_formats: list[str] = []
    """The formats of timestamps, like ``%d.%m.%Y``; by default ISO 8601."""
    skip_rows: int = 0
    """The number of lines before the header, or before the first row of a file without one."""
    comment: str | None = None
    """The character that a line begins with if it is a comment."""
    encoding: str = "utf-8"
    """The encoding of the files, by a name that Python knows."""
    thousands: str | None = None
    """The character between groups of digits of a number."""
    allow_missing_columns: bool = False
    """True if a row may have fewer fields than the header, and a file fewer columns than the first
    one; they are null."""


class JsonOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[inputs.NAME.json]``: the format of json files."""

    encoding: str = "utf-8"
    """The encoding of the files, by a name that Python knows."""
    timestamp_formats: list[str] = []
    """The formats of the timestamps in ``types``, like ``%d.%m.%Y``; by default ISO 8601."""
