"""From a TOML file to a `JobSpec`, with every mistake named by its key path."""

from __future__ import annotations

import datetime
import difflib
import re
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from mrflight.errors import JobFileError
from mrflight.spec import JobSpec

_ERROR_PATH = re.compile(r"(.*) - at `\$\.?(.*?)`", re.DOTALL)


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
    except tomllib.TOMLDecodeError as error:
        raise JobFileError(f"{path} is not TOML: {error}") from error
    for key, value in (overrides or {}).items():
        _set(document, key.split("."), value)
    return decode_job(document)


def decode_job(document: Mapping[str, Any]) -> JobSpec:
    """The job that a parsed document describes; JobFileError as for `load_job`."""
    _check_keys(document, JobSpec, ())
    try:
        return msgspec.convert(document, JobSpec)
    except msgspec.ValidationError as error:
        raise JobFileError(_in_our_words(str(error))) from error


def parse_override(text: str) -> tuple[str, Any]:
    """``section.key=value`` of a command line; the value is TOML, or else a plain string.

    No key is a date, so what looks like one, a run id perhaps, is a string as well.
    """
    key, equals, value = text.partition("=")
    if not equals or not all(key.split(".")):
        raise JobFileError(f"--set {text}: write section.key=value")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value
    is_date = isinstance(parsed, datetime.date | datetime.time)
    return key.strip(), value if is_date else parsed


def _set(document: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for depth, name in enumerate(path[:-1]):
        document = document.setdefault(name, {})
        if not isinstance(document, dict):
            raise JobFileError(
                f"--set {'.'.join(path)}: {'.'.join(path[: depth + 1])} is no section"
            )
    document[path[-1]] = value


def _check_keys(value: Any, kind: Any, path: tuple[str, ...]) -> None:
    """Raise for the first key that a struct does not know, with the nearest one that it does."""
    if not isinstance(value, Mapping):
        return
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind)
        for name, inner in value.items():
            if name not in hints:
                raise JobFileError(_unknown_key(name, list(hints), path))
            _check_keys(inner, _struct_in(hints[name]), (*path, name))
    elif typing.get_origin(kind) is dict:
        for name, inner in value.items():
            _check_keys(inner, typing.get_args(kind)[1], (*path, name))


def _struct_in(hint: Any) -> Any:
    """The hint itself, or the struct in ``Struct | None``."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        structs = [h for h in typing.get_args(hint) if isinstance(h, type) and h is not type(None)]
        return structs[0] if structs else None
    return hint


def _unknown_key(name: str, known: list[str], path: tuple[str, ...]) -> str:
    full = ".".join((*path, name))
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
    return f"{full}: no such key; {hint}"


def _in_our_words(message: str) -> str:
    match = _ERROR_PATH.fullmatch(message)
    reason, path = (match[1], match[2]) if match else (message, "")
    missing = re.fullmatch(r"Object missing required field `(.*)`", reason)
    if missing:
        return f"{'.'.join(filter(None, (path, missing[1])))}: this key is missing"
    return f"{path}: {reason[0].lower()}{reason[1:]}" if path else reason
