"""Checks the keys and the types of a parsed job file, and names every mistake by its path."""

from __future__ import annotations

import difflib
import re
import reprlib
import types
import typing
from collections.abc import Mapping
from typing import Any

import msgspec

from mrflight.config.input_spec import InputSpec
from mrflight.errors import JobFileError

STORAGE = "storage"
"""The section whose values are never shown in messages, because they may be secrets."""

_SYNONYMS = {"outer": "full", "full_outer": "full", "left_outer": "left", "right_outer": "right"}
"""Choices by the names that other systems have for them."""

_WRONG_TYPE = re.compile(r"Expected `([^`]+)`, got `([^`]+)`")
"""A message of msgspec."""

_TYPES_IN_WORDS = {
    "array": "a list",
    "bool": "true or false",
    "InputFrame": "rows in memory, which only a job in Python has",
    "StreamBatch": "a part of a stream, which only a batch of a stream has",
    "UnstoredColumns": "left out, as only change events have it",
    "float": "a number",
    "int": "a whole number",
    "object": "a table",
    "str": "a string",
}
"""What the types of msgspec's messages are called in ours."""


def check_type(value: Any, kind: Any, path: str) -> None:
    """Raise JobFileError for the first key or value that does not conform to ``kind``.

    msgspec would write ``inputs[...]`` for a table that the user named, so every value is checked
    here with the path that leads to it.
    """
    kind = _struct_in(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        _check_struct(_table(value, path), kind, path)
    elif typing.get_origin(kind) is dict:
        for name, inner in _table(value, path).items():
            check_type(inner, typing.get_args(kind)[1], _join(path, name))
    else:
        _check_value(value, kind, path)


def _check_struct(table: Mapping[str, Any], kind: type[msgspec.Struct], path: str) -> None:
    hints = typing.get_type_hints(kind)
    for name, inner in table.items():
        if name not in hints:
            near = difflib.get_close_matches(name, hints, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"the keys are {', '.join(hints)}"
            raise JobFileError(f"{_join(path, name)}: unknown key; {hint}")
        check_type(inner, hints[name], _join(path, name))
    for field in msgspec.structs.fields(kind):
        if field.required and field.name not in table:
            how = _how_to_write(path, field.name, hints[field.name])
            raise JobFileError(f"{_join(path, field.name)} is missing; write {how}")


def _how_to_write(path: str, name: str, kind: Any) -> str:
    """Describe how to write a missing key: a section with its required keys, or a value."""
    section = f"[{_join(path, name)}]"
    if typing.get_origin(kind) is dict:
        kind = typing.get_args(kind)[1]
        section = f"[{_join(path, name)}.NAME]"
    if not (isinstance(kind, type) and _is_struct(kind)):
        return f'{name} = "..." in [{path}]'
    required = [field.name for field in msgspec.structs.fields(kind) if field.required]
    if kind is InputSpec:
        required = ["path"]  # or stage
    return f"{section} with " + ", ".join(f'{inner} = "..."' for inner in required)


def _check_value(value: Any, kind: Any, path: str) -> None:
    if isinstance(value, int) and not has_64_bits(value):
        raise JobFileError(f"{path}: the number has more than 64 bits")
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        reason, _, inside = str(error).partition(" - at `$")
        choices = _choices(kind)
        if choices and not inside:
            reason = f"{_shown(value)} is not {_list_choices(choices)}"
            if isinstance(value, str) and value in _SYNONYMS and repr(_SYNONYMS[value]) in choices:
                reason += f"; write {_SYNONYMS[value]!r}"
        elif "datetime" in reason:
            reason = f"{_shown(str(value))} is not a time such as '2026-11-21T10:00:00Z'"
        elif found := _WRONG_TYPE.fullmatch(reason):
            wanted = " or ".join(
                _in_words(name) for name in found[1].split(" | ") if name != "null"
            )
            is_secret = path.startswith(f"{STORAGE}.")
            given = _in_words(found[2]) if inside or is_secret else _shown(value)
            is_one = isinstance(value, str) and "a list" in wanted
            hint = f"; write [{given}]" if is_one and not is_secret else ""
            raise JobFileError(
                f"{path}{inside.rstrip('`')} must be {wanted}, not {given}{hint}"
            ) from error
        raise JobFileError(f"{path}{inside.rstrip('`')}: {reason}") from error


def _in_words(msgspec_name: str) -> str:
    """Return what a type that msgspec names is called in a message."""
    return _TYPES_IN_WORDS.get(msgspec_name, f"a value of type {msgspec_name}")


def has_64_bits(value: int) -> bool:
    """Return whether a whole number is one that msgspec reads."""
    return -(2**63) <= value < 2**63


def _choices(kind: Any) -> list[str]:
    """Return the values that are allowed, if the kind is an enumeration."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        alternatives = [_choices(part) for part in typing.get_args(kind)]
        named = [choice for choices in alternatives for choice in choices]
        return [*named, "a number"] if named and int in typing.get_args(kind) else named
    return [repr(choice) for choice in typing.get_args(kind)] if _is_literal(kind) else []


def _list_choices(choices: list[str]) -> str:
    *others, last = choices
    return f"{', '.join(others)} or {last}" if others else last


def _is_literal(kind: Any) -> bool:
    return typing.get_origin(kind) is typing.Literal


def _struct_in(kind: Any) -> Any:
    """Return the struct in ``Struct | None``, or the kind itself."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        parts = typing.get_args(kind)
        structs = [part for part in parts if isinstance(part, type) and _is_struct(part)]
        return structs[0] if structs else kind
    return kind


def _is_struct(kind: type) -> bool:
    return issubclass(kind, msgspec.Struct)


def _table(value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        is_hidden = path.split(".")[0] == STORAGE
        shown = f"a value of type {type(value).__name__}" if is_hidden else _shown(value)
        raise JobFileError(f"{path} must be a table, [{path}], not {shown}")
    return value


def _shown(value: Any) -> str:
    """Return a value for a message; long or deeply nested ones are shortened."""
    shortened = reprlib.Repr()
    shortened.maxstring = shortened.maxother = 100
    try:
        return shortened.repr(value)
    except ValueError:  # a number of 5,000 digits cannot be formatted
        return f"a value of type {type(value).__name__}"


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
