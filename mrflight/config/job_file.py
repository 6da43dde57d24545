"""From a TOML file to a `JobSpec`, with every mistake named by its key path."""

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
from typing import Any

import msgspec

from mrflight.config.secret_options import holds_secret
from mrflight.config.spec import InputSpec, JobSpec
from mrflight.errors import JobFileError

_STORAGE = "storage"
"""The section whose values no message shows: they may be secrets."""

_NOT_OF_A_KEY = re.compile(r"[^\w.-]")
"""What follows may be a secret, after something else than an equals sign."""

_OF_FILES = ("format", "columns", "types", "csv", "version", "timestamp")
"""Keys of an input that a stage's result has no use for."""

_MEANT = {"outer": "full", "full_outer": "full", "left_outer": "left", "right_outer": "right"}
"""Choices by what others call them."""


def load_job(path: Path, overrides: Mapping[str, Any] | None = None) -> JobSpec:
    """The job in a file, with ``overrides`` by dotted key (``shuffle.partitions``) on top.

    Raises JobFileError: the file cannot be read or is not TOML, a key is
    unknown or missing, a value is of the wrong type.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise JobFileError(f"{path} cannot be read: {error}") from error
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: a number of 5,000 digits as well
        raise JobFileError(f"{path} is not TOML: {error}") from error
    for key, value in (overrides or {}).items():
        _set(document, key.split("."), value)
    return decode_job(document)


def decode_job(document: Mapping[str, Any]) -> JobSpec:
    """The job that a parsed document describes; JobFileError as for `load_job`."""
    document = _with_texts(document)
    _check(document, JobSpec, "")
    spec = msgspec.convert(document, JobSpec)
    for name, stage in spec.stages.items():
        _check_inputs(stage.inputs, f"stages.{name}.inputs")
    _check_inputs(spec.inputs, "inputs")
    return spec


def parse_override(text: str) -> tuple[str, Any]:
    """``section.key=value`` of a command line; the value is TOML, or else a plain string.

    No key is a date, so what looks like one, a run id perhaps, is a string as well. JobFileError,
    without the value, for what is none, or a secret of a store.
    """
    key, equals, value = text.partition("=")
    path = [name.strip() for name in key.split(".")]
    if not equals or not all(path):
        shown = _NOT_OF_A_KEY.split(key.strip(), maxsplit=1)[0]
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
    """Raise JobFileError for a secret: who sees the processes sees their arguments."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            _check_no_secret([*path, name], inner)
    elif holds_secret(path[-1], value):
        raise JobFileError(
            f"--set {'.'.join(path)}: everybody on this machine can read the arguments of a "
            "process, so no secret may be there: write it into [storage] of the job file, or into "
            "the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN)"
        )


def _with_texts(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document, where ``[storage]`` has booleans and whole numbers as stores take them."""
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
    """Raise JobFileError unless each is told by one key where it is, and by at most one its map.

    What says how files are read is not for the result of a stage.
    """
    if not inputs:
        raise JobFileError(f"{at}: at least one is needed, [{at}.NAME]")
    for name, section in inputs.items():
        key = f"{at}.{name}"
        if section.path is None and section.stage is None:
            raise JobFileError(
                f'{key}.path: this key is missing; write path = "..." in [{key}], or stage = "..." '
                "for the result of a stage"
            )
        if section.path is not None and section.stage is not None:
            raise JobFileError(f"{key}.stage: takes the place of path; keep one")
        if section.stage is not None and (told := _of_files_alone(section)):
            raise JobFileError(
                f"{key}.{told}: is for files, and {key} is what stage {section.stage} makes; leave "
                "it out, and select or cast columns in sql or a map"
            )
        if section.map is not None and section.sql is not None:
            raise JobFileError(f"{key}.sql: takes the place of map; keep one")
        if section.sql_table is not None and section.sql is None:
            raise JobFileError(f"{key}.sql_table: is what sql calls the rows; write sql, too")


def _of_files_alone(section: InputSpec) -> str | None:
    """A key that says something of files, if one is told."""
    unsaid = InputSpec()
    return next((key for key in _OF_FILES if getattr(section, key) != getattr(unsaid, key)), None)


def _set(document: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for depth, name in enumerate(path[:-1]):
        document = document.setdefault(name, {})
        if not isinstance(document, dict):
            raise JobFileError(
                f"--set {'.'.join(path)}: {'.'.join(path[: depth + 1])} is no section"
            )
    document[path[-1]] = value


def _check(value: Any, kind: Any, path: str) -> None:
    """Raise JobFileError for the first key or value that is not as ``kind`` has it.

    msgspec would say ``inputs[...]`` for a table that the user named, so every
    value is looked at with the path that leads to it.
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
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(hints)}"
            raise JobFileError(f"{_join(path, name)}: no such key; {hint}")
        _check(inner, hints[name], _join(path, name))
    for field in msgspec.structs.fields(kind):
        if field.required and field.name not in table:
            how = _how_to_write(path, field.name, hints[field.name])
            raise JobFileError(f"{_join(path, field.name)}: this key is missing; write {how}")


def _how_to_write(path: str, name: str, kind: Any) -> str:
    """A key with what it cannot do without: a section, or a value in one."""
    section = f"[{_join(path, name)}]"
    if typing.get_origin(kind) is dict:
        kind = typing.get_args(kind)[1]
        section = f"[{_join(path, name)}.NAME]"
    if not (isinstance(kind, type) and _is_struct(kind)):
        return f'{name} = "..." in [{path}]'
    required = [field.name for field in msgspec.structs.fields(kind) if field.required]
    if kind is InputSpec:
        required = ["path"]  # or the other that tells where it is
    return f"{section} with " + ", ".join(f'{inner} = "..."' for inner in required)


def _check_value(value: Any, kind: Any, path: str) -> None:
    if isinstance(value, int) and not _has_64_bits(value):
        raise JobFileError(f"{path}: a number of more than 64 bits")
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        reason, _, inside = str(error).partition(" - at `$")
        choices = _choices(kind)
        if choices and not inside:
            reason = f"{_shown(value)} is not {_listed(choices)}"
            if isinstance(value, str) and value in _MEANT and repr(_MEANT[value]) in choices:
                reason += f"; write {_MEANT[value]!r}"
        elif "datetime" in reason:
            reason = f"{_shown(str(value))} is no time such as '2026-11-21T10:00:00Z'"
        elif reason.startswith("Expected"):
            reason = f"{reason[0].lower()}{reason[1:]}"
        raise JobFileError(f"{path}{inside.rstrip('`')}: {reason}") from error


def _has_64_bits(value: int) -> bool:
    return -(2**63) <= value < 2**63


def _choices(kind: Any) -> list[str]:
    """What a value may be, where it is one of a few."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        alternatives = [_choices(part) for part in typing.get_args(kind)]
        named = [choice for choices in alternatives for choice in choices]
        return [*named, "a number"] if named and int in typing.get_args(kind) else named
    return [repr(choice) for choice in typing.get_args(kind)] if _is_literal(kind) else []


def _listed(choices: list[str]) -> str:
    *others, last = choices
    return f"{', '.join(others)} or {last}" if others else last


def _is_literal(kind: Any) -> bool:
    return typing.get_origin(kind) is typing.Literal


def _struct_in(kind: Any) -> Any:
    """The kind itself, or the struct in ``Struct | None``."""
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
        raise JobFileError(f"{path}: is a table, [{path}], not {shown}")
    return value


def _shown(value: Any) -> str:
    """A value as a message shows it: not all of what is long, or nested deeply."""
    shortened = reprlib.Repr()
    shortened.maxstring = shortened.maxother = 100
    try:
        return shortened.repr(value)
    except ValueError:  # a number of 5,000 digits, which is written in hexadecimal
        return f"a value of type {type(value).__name__}"


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
