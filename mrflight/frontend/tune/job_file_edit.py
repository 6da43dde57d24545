"""Changes keys of a job file, and nothing else in it: comments and layout stay as they are."""

from __future__ import annotations

import os
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mrflight.errors import JobFileError


def set_keys(path: Path, values: Mapping[str, object]) -> None:
    """Set keys, which are dotted as for ``--set``, in a job file. The file is replaced at once.

    Raises JobFileError, and leaves the file as it is, if it cannot be changed or written.
    """
    target = path.resolve()  # a link stays a link
    try:
        text = target.read_bytes().decode()  # with the ends of lines as they are
        _replace(target, edited(text, values))
    except (OSError, UnicodeDecodeError) as error:
        raise JobFileError(f"{path} cannot be written: {error}") from error


def edited(text: str, values: Mapping[str, object]) -> str:
    """Return a job file with these keys set, which are dotted. Raises JobFileError."""
    if "\r\n" in text and text.count("\r\n") == text.count("\n"):  # new lines end alike
        return edited(text.replace("\r\n", "\n"), values).replace("\n", "\r\n")
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document = tomlkit.parse(text)
        for key, value in values.items():
            _set(document, key.split("."), value)
        after = tomlkit.dumps(document)
        is_right = tomllib.loads(after) == _expected(text, values)
    except (TOMLKitError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise JobFileError(f"the job file cannot be changed: {error}; set {values}") from error
    if not is_right:
        raise JobFileError(f"the job file cannot be changed without other effects; set {values}")
    return after


def _set(table: Any, path: list[str], value: object) -> None:
    """Set a key of a document or table of tomlkit; add the sections that are missing."""
    import tomlkit

    name, *inner = path
    if not inner:
        table[name] = value
        return
    if name not in table:
        table[name] = tomlkit.table(is_super_table=len(inner) > 1)
    _set(table[name], inner, value)


def _expected(text: str, values: Mapping[str, object]) -> dict[str, Any]:
    """Return what the file must mean after the change."""
    document = tomllib.loads(text)
    for key, value in values.items():
        *sections, name = key.split(".")
        table = document
        for section in sections:
            table = table.setdefault(section, {})
        table[name] = value
    return document


def _replace(path: Path, text: str) -> None:
    """Write the file under another name first, so that it is never half written."""
    mode = path.stat().st_mode
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(number, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode & 0o7777)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
