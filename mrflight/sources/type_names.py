"""Parse the names of types in a job file: ``int64``, ``timestamp[us, UTC]``, ``list<string>``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import pyarrow as pa

from mrflight.errors import JobFileError

_SIMPLE: dict[str, Callable[[], pa.DataType]] = {
    "bool": pa.bool_,
    "int8": pa.int8,
    "int16": pa.int16,
    "int32": pa.int32,
    "int64": pa.int64,
    "uint8": pa.uint8,
    "uint16": pa.uint16,
    "uint32": pa.uint32,
    "uint64": pa.uint64,
    "float": pa.float32,
    "float32": pa.float32,
    "float64": pa.float64,
    "double": pa.float64,
    "string": pa.string,
    "utf8": pa.string,
    "large_string": pa.large_string,
    "binary": pa.binary,
    "large_binary": pa.large_binary,
    "date32": pa.date32,
    "date32[day]": pa.date32,
    "date64": pa.date64,
    "date64[ms]": pa.date64,
}
_EXAMPLES = (
    "bool, int8 to int64, uint8 to uint64, float32, float64, string, large_string, binary, "
    "date32, time32[s|ms], time64[us|ns], timestamp[s|ms|us|ns], timestamp[us, UTC], "
    "duration[s|ms|us|ns], decimal128(12, 2), list<int64>, struct<x: int64, y: string>"
)
_TIME = re.compile(r"(time32|time64|timestamp|duration)\[(s|ms|us|ns)(?:,\s*(?:tz=)?([^\]]+))?\]")
_DECIMAL = re.compile(r"decimal(?:128)?\(\s*(\d+)\s*,\s*(-?\d+)\s*\)")
_NESTED = re.compile(r"(list|struct)<(.*)>", re.DOTALL)
_TIME_UNITS = {"time32": ("s", "ms"), "time64": ("us", "ns"), "duration": ("s", "ms", "us", "ns")}
_OFFSET = re.compile(r"[+-]\d\d:\d\d")


def parse_types(types: Mapping[str, str], input_name: str) -> dict[str, pa.DataType]:
    """Return the Arrow types of ``inputs.NAME.types``.

    Raises JobFileError, with the column's key path, for an unknown type.
    """
    parsed = {}
    for column, text in types.items():
        try:
            parsed[column] = parse_type(text)
        except ValueError as error:
            raise JobFileError(f"inputs.{input_name}.types.{column}: {error}") from error
    return parsed


def unsupported_type(
    types: Mapping[str, pa.DataType], input_name: str, error: pa.ArrowNotImplementedError
) -> JobFileError:
    """Return the error for the one of ``types`` that pyarrow cannot read from text."""
    refused = [column for column, type in types.items() if str(error).find(f"to {type} is") >= 0]
    column = f".{refused[0]}" if refused else ""
    return JobFileError(f"inputs.{input_name}.types{column}: {error}")


def parse_type(text: str) -> pa.DataType:
    """Return the Arrow type with this name; raise ValueError, with the known names, without one."""
    text = text.strip()
    if text in _SIMPLE:
        return _SIMPLE[text]()
    if match := _TIME.fullmatch(text):
        return _time_type(text, *match.groups())
    if match := _DECIMAL.fullmatch(text):
        return pa.decimal128(int(match[1]), int(match[2]))
    if match := _NESTED.fullmatch(text):
        return _list_type(match[2]) if match[1] == "list" else _struct_type(match[2])
    raise ValueError(f"{text!r} is not a type; known types are {_EXAMPLES}")


def _time_type(text: str, kind: str, unit: str, zone: str | None) -> pa.DataType:
    if kind == "timestamp":
        return pa.timestamp(unit, _known_zone(zone.strip()) if zone else None)
    if zone or unit not in _TIME_UNITS[kind]:
        raise ValueError(f"{text!r} is not a type; known types are {_EXAMPLES}")
    return getattr(pa, kind)(unit)


def _known_zone(zone: str) -> str:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        if not _OFFSET.fullmatch(zone):
            ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(
            f"{zone!r} is not a time zone; write one such as UTC or Europe/Rome"
        ) from error
    return zone


def _list_type(text: str) -> pa.DataType:
    return pa.list_(parse_type(text.removeprefix("item:")))


def _struct_type(text: str) -> pa.DataType:
    fields = []
    for part in _split_outside_brackets(text):
        name, colon, inner = part.partition(":")
        if not colon or not name.strip():
            raise ValueError(f"{part.strip()!r} is not a field; write struct<x: int64, y: string>")
        fields.append(pa.field(name.strip(), parse_type(inner)))
    return pa.struct(fields)


def _split_outside_brackets(text: str) -> list[str]:
    """Return the parts of ``text`` between the commas that are not in brackets."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "<[(") - (char in ">])")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts
