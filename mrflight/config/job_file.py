"""Reads a job file into a `JobSpec`, and names every mistake by the path of its key."""

from __future__ import annotations

import datetime
import difflib
import re
import reprlib
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from mrflight.config.secret_options import holds_secret
from mrflight.config.spec import InputSpec, JobSpec, StageSpec
from mrflight.errors import JobFileError

_STORAGE = "storage"
"""The section whose values are never shown in messages, because they may be secrets."""

_NOT_IN_A_KEY = re.compile(r"[^\w.-]")
"""What follows such a character may be a secret that is not written behind an equals sign."""

FILE_KEYS = (
    *("format", "columns", "types", "schema", "csv", "json", "bad_rows", "hive"),
    *("version", "timestamp", "sample"),
)
"""Keys of an input that only apply to files, and not to the result of a stage."""

_SYNONYMS = {"outer": "full", "full_outer": "full", "left_outer": "left", "right_outer": "right"}
"""Choices by the names that other systems have for them."""

_WRONG_TYPE = re.compile(r"Expected `([^`]+)`, got `([^`]+)`")
"""A message of msgspec."""

_TYPES_IN_WORDS = {
    "array": "a list",
    "bool": "true or false",
    "InputFrame": "rows in memory, which only a job in Python has",
    "float": "a number",
    "int": "a whole number",
    "object": "a table",
    "str": "a string",
}
"""What the types of msgspec's messages are called in ours."""


_S = TypeVar("_S", JobSpec, StageSpec)


def load_job(path: Path, overrides: Mapping[str, Any] | None = None) -> JobSpec:
    """Return the job in a file, with ``overrides`` by dotted key (``shuffle.partitions``).

    Raises JobFileError if the file cannot be read or is not TOML, if a key is unknown or missing,
    or if a value has the wrong type.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise JobFileError(f"{path} cannot be read: {error}") from error
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is a ValueError, too
        raise JobFileError(f"{path} is not TOML: {error}") from error
    for key, value in (overrides or {}).items():
        _set(document, key.split("."), value)
    return decode_job(document)


def decode_job(document: Mapping[str, Any]) -> JobSpec:
    """Return the job that a parsed document describes; JobFileError as for `load_job`."""
    document = _with_storage_texts(document)
    _check(document, JobSpec, "")
    spec = msgspec.convert(document, JobSpec)
    for name, stage in spec.stages.items():
        _check_inputs(stage.inputs, f"stages.{name}.inputs")
    _check_inputs(spec.inputs, "inputs")
    stages = {
        name: _with_partitioner(stage, document["stages"][name], has_key=False)
        for name, stage in spec.stages.items()
    }
    spec = _with_partitioner(spec, document, has_key=bool(spec.output.keys))
    return msgspec.structs.replace(spec, stages=stages)


def _with_partitioner(section: _S, written: Mapping[str, Any], *, has_key: bool) -> _S:
    """Return a section that sends rows evenly to all partitions if nothing brings rows together."""
    has_key = has_key or any(each.key for each in section.inputs.values())
    if has_key or section.reduce is not None or "partitioner" in written.get("shuffle", {}):
        return section
    shuffle = msgspec.structs.replace(section.shuffle, partitioner="round_robin")
    return msgspec.structs.replace(section, shuffle=shuffle)


def parse_override(text: str) -> tuple[str, Any]:
    """Parse ``section.key=value`` of a command line; the value is TOML, or else a plain string.

    No key takes a date, so a value that looks like one, for example a run id, is a string, too.
    Raises JobFileError, which does not show the value, for other texts and for secrets of stores.
    """
    key, equals, value = text.partition("=")
    path = [name.strip() for name in key.split(".")]
    if not equals or not all(path):
        shown = _NOT_IN_A_KEY.split(key.strip(), maxsplit=1)[0]
        raise JobFileError(f"--set {shown}: write section.key=value")
    try:
        parsed = tomllib.loads(f"value = {value}")
    except ValueError:
        parsed = {}
    except RecursionError as error:
        raise JobFileError(f"--set {key}: the value is nested too deeply") from error
    is_one_value = parsed.keys() == {"value"}
    if not is_one_value or isinstance(parsed["value"], datetime.date | datetime.time):
        parsed = {"value": value}
    if path[0] == _STORAGE:
        _check_no_secret(path, parsed["value"])
    return ".".join(path), parsed["value"]


def _check_no_secret(path: Sequence[str], value: Any) -> None:
    """Raise JobFileError for a secret, because a list of processes shows their arguments."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            _check_no_secret([*path, name], inner)
    elif holds_secret(path[-1], value):
        raise JobFileError(
            f"--set {'.'.join(path)}: a secret must not be an argument, because every user of this "
            "machine can read the arguments of a process; put it into [storage] of the job file, "
            "or into the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN)"
        )


def _with_storage_texts(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the document with booleans and whole numbers of ``[storage]`` as text."""
    section = document.get(_STORAGE)
    if not isinstance(section, Mapping):
        return document
    texts = {name: _text(value) for name, value in section.items()}
    return {**document, _STORAGE: texts}


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) and _has_64_bits(value) else value


def _check_inputs(inputs: Mapping[str, InputSpec], at: str) -> None:
    """Raise JobFileError for inputs whose keys exclude or need each other.

    Every input has either a path or a stage, and at most one of map and sql. Keys that say how
    files are read do not apply to the result of a stage.
    """
    if not inputs:
        raise JobFileError(f"{at} must have at least one input; write [{at}.NAME]")
    for name, section in inputs.items():
        key = f"{at}.{name}"
        if section.path is None and section.stage is None and section.frame is None:
            raise JobFileError(
                f'{key}.path is missing; write path = "..." in [{key}], or stage = "..." '
                "for the result of a stage"
            )
        if section.path == []:
            raise JobFileError(f"{key}.path must have at least one file, folder or glob")
        if section.path is not None and section.stage is not None:
            raise JobFileError(f"{key}.stage and {key}.path exclude each other; keep one of them")
        if (rows := _rows_without_files(section)) and (file_key := _first_file_key(section)):
            raise JobFileError(
                f"{key}.{file_key} only applies to files, and {key} is {rows}; remove it, and "
                "select or cast columns in sql or a map"
            )
        if section.map is not None and section.sql is not None:
            raise JobFileError(f"{key}.sql and {key}.map exclude each other; keep one of them")
        if section.sql_table is not None and section.sql is None and section.filter is None:
            raise JobFileError(
                f"{key}.sql_table names the rows in {key}.sql, which is missing; write sql, too"
            )


def _rows_without_files(section: InputSpec) -> str:
    """Return what the rows are, in words, if they are not those of files."""
    if section.frame is not None:
        return f"a {section.frame.kind}"
    return "" if section.stage is None else f"the result of stage {section.stage}"


def _first_file_key(section: InputSpec) -> str | None:
    """Return the first key that is set and only applies to files, or None."""
    # The columns of rows in memory can be selected as they are read.
    unset = InputSpec(columns=None if section.frame is None else section.columns)
    return next((key for key in FILE_KEYS if getattr(section, key) != getattr(unset, key)), None)


def _set(document: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for depth, name in enumerate(path[:-1]):
        document = document.setdefault(name, {})
        if not isinstance(document, dict):
            raise JobFileError(
                f"--set {'.'.join(path)}: {'.'.join(path[: depth + 1])} is not a section"
            )
    document[path[-1]] = value


def _check(value: Any, kind: Any, path: str) -> None:
    """Raise JobFileError for the first key or value that does not conform to ``kind``.

    msgspec would write ``inputs[...]`` for a table that the user named, so every value is checked
    here with the path that leads to it.
    """
    kind = _struct_in(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        _check_struct(_table(value, path), kind, path)
    elif typing.get_origin(kind) is dict:
        for name, inner in _table(value, path).items():
            _check(inner, typing.get_args(kind)[1], _join(path, name))
    else:
        _check_value(value, kind, path)


def _check_struct(table: Mapping[str, Any], kind: type[msgspec.Struct], path: str) -> None:
    hints = typing.get_type_hints(kind)
    for name, inner in table.items():
        if name not in hints:
            near = difflib.get_close_matches(name, hints, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"the keys are {', '.join(hints)}"
            raise JobFileError(f"{_join(path, name)}: unknown key; {hint}")
        _check(inner, hints[name], _join(path, name))
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
    if isinstance(value, int) and not _has_64_bits(value):
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
            is_secret = path.startswith(f"{_STORAGE}.")
            given = _in_words(found[2]) if inside or is_secret else _shown(value)
            raise JobFileError(
                f"{path}{inside.rstrip('`')} must be {wanted}, not {given}"
            ) from error
        raise JobFileError(f"{path}{inside.rstrip('`')}: {reason}") from error


def _in_words(msgspec_name: str) -> str:
    """Return what a type that msgspec names is called in a message."""
    return _TYPES_IN_WORDS.get(msgspec_name, f"a value of type {msgspec_name}")


def _has_64_bits(value: int) -> bool:
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
        is_hidden = path.split(".")[0] == _STORAGE
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
