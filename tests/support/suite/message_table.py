"""The table of messages, ``tests/messages/``: one file for each room of tests.

A file has a section for each file of tests. A test has one text, or the texts of all its messages
in their order, or for each of its parameters one or the other if they differ.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import tempfile
import tomllib
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "tests" / "messages"
HEAD = "# Written by `make messages`; look at the difference before you commit it.\n"

Texts = str | list[str]
"""One text for all messages of a test, or each of them."""
Entry = Texts | dict[str, Texts]
"""The texts of a function, or of each of its parameters."""

_TEMP = re.escape(os.environ.get("PYTEST_DEBUG_TEMPROOT") or tempfile.gettempdir())
"""The folder for temporary files as it was before each worker got one of its own."""
_VARYING = [
    (re.compile(re.escape(str(ROOT))), "ROOT"),
    (re.compile(r"(?:/[\w.-]+)+/pytest-of-\w+/pytest-\d+(?:/popen-gw\d+)?/[\w.-]+"), "TMP"),
    (re.compile(rf"{_TEMP}/mrflight-suite-\w+/\w+/[\w.-]+"), "TMP"),
    (re.compile(rf"{_TEMP}/(?!TMP)[\w.-]+"), "TMP"),
    (re.compile(rf"{re.escape(sys.prefix)}/[^\s'\"]*?(?=mrflight|site-packages)"), "ENV/"),
    (re.compile(rf"\b{re.escape(socket.gethostname())}\b"), "HOST"),
    (re.compile(r"(?<=127\.0\.0\.1:)\d{2,5}|(?<=localhost:)\d{2,5}|(?<=\[::1\]:)\d{2,5}"), "PORT"),
    (re.compile(r"\b(process|pid) \d+"), r"\1 PID"),
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b[0-9a-f]{32}\b"), "UUID"),
    (re.compile(r"(?<=\.py, line )\d+|(?<=\.py\", line )\d+"), "LINE"),
    (re.compile(r"\b0x[0-9a-fA-F]{6,}"), "ADDRESS"),
    (re.compile(r"\b20\d{6}T\d{6}\b"), "STAMP"),
    (re.compile(r"(?<=ended on )20\d\d-\d\d-\d\d"), "DATE"),
    (re.compile(r"\b\d+\.\d+(?= m?s\b)"), "TIME"),
]


class Name(NamedTuple):
    """A test: its file below ``tests``, its function, and its parameters, empty if it has none."""

    file: str
    test: str
    parameters: str

    @property
    def room(self) -> str:
        """Return the path, within the table, of the file that has the texts of this test."""
        return f"{'/'.join(Path(self.file).parent.parts[:2])}.toml"


def name_of(item: pytest.Function) -> Name:
    """Return the name of a test. Its node id may have a group of pytest-xdist behind it."""
    of_classes = [each.name for each in item.listchain() if isinstance(each, pytest.Class)]
    test = ".".join([*of_classes, getattr(item, "originalname", item.name)])
    parameters = item.callspec.id if hasattr(item, "callspec") else ""
    folder = ROOT / "tests"
    path = item.path.relative_to(folder) if item.path.is_relative_to(folder) else item.path
    return Name(path.as_posix(), test, parameters)


def normalised(text: str) -> str:
    """Return a text with names for what differs from run to run and from machine to machine."""
    for pattern, name in _VARYING:
        text = pattern.sub(name, text)
    return text


class MessageTable:
    """Reads each file once, and writes those whose texts have changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read = cache(self._read_file)

    def text_of(self, name: Name, number: int) -> str | None:
        """Return the text of a message of a test, by its number from 0; None if there is none."""
        entry = self._read(self._folder / name.room).get(name.file, {}).get(name.test)
        if isinstance(entry, dict):
            entry = entry.get(name.parameters)
        if isinstance(entry, list):
            return entry[number] if number < len(entry) else None
        return entry

    def rewrite(
        self,
        seen: Mapping[Name, list[str]],
        ran: Collection[Name],
        collected: Collection[Name],
    ) -> None:
        """Write the texts that were seen; what has not run keeps its texts, if it is still there.

        Files of tests of which nothing was collected are left as they are.
        """
        files: dict[Path, dict[str, list[Name]]] = {}
        for name in collected:
            files.setdefault(self._folder / name.room, {}).setdefault(name.file, []).append(name)
        for path, of_files in files.items():
            table = self._read_file(path)
            for file, names in of_files.items():
                before = table.get(file, {})
                there = {each.test for each in names}
                kept = {
                    test: entry
                    for test, entry in before.items()
                    if test not in there and is_there(file, test)
                }
                table[file] = kept | _merged(before, names, seen, set(ran))
            _write(path, table)
        self._read.cache_clear()

    @staticmethod
    def _read_file(path: Path) -> dict[str, dict[str, Entry]]:
        if not path.exists():
            return {}
        found: dict[str, dict[str, Entry]] = tomllib.loads(path.read_text(encoding="utf-8"))
        return found


def is_there(file: str, test: str) -> bool:
    """Return whether a file of tests, below ``tests``, has a test of this name."""
    path = ROOT / "tests" / file
    name = test.rpartition(".")[2]
    return path.exists() and f"def {name}(" in path.read_text(encoding="utf-8")


def _merged(
    before: Mapping[str, Entry],
    names: list[Name],
    seen: Mapping[Name, list[str]],
    ran: set[Name],
) -> dict[str, Entry]:
    """Return the entries of a file of tests, of which ``names`` are there."""
    after: dict[str, dict[str, Texts]] = {}
    for name in names:
        old = before.get(name.test)
        texts = old.get(name.parameters) if isinstance(old, dict) else old
        if name in ran:
            texts = _shortest(seen[name]) if name in seen else None
        if texts is not None:
            after.setdefault(name.test, {})[name.parameters] = texts
    return {
        test: next(iter(texts.values())) if len({*map(repr, texts.values())}) == 1 else texts
        for test, texts in after.items()
    }


def _shortest(texts: list[str]) -> Texts:
    return texts[0] if len(set(texts)) == 1 else texts


def _write(path: Path, table: dict[str, dict[str, Entry]]) -> None:
    lines = [HEAD]
    for file, unsorted in sorted(table.items()):
        tests = dict(sorted(unsorted.items()))
        plain = [f"{test} = {_toml(e)}" for test, e in tests.items() if not isinstance(e, dict)]
        if plain:
            lines += [f'["{file}"]', *plain, ""]
        for test, entry in tests.items():
            if isinstance(entry, dict):
                lines.append(f'["{file}".{_key(test)}]')
                lines += [f"{_key(name)} = {_toml(texts)}" for name, texts in entry.items()]
                lines.append("")
    if len(lines) == 1:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines), encoding="utf-8")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[\w-]+", name, re.ASCII) else _toml(name)


def _toml(texts: Texts) -> str:
    """Return texts as TOML, whose basic strings escape what those of JSON do, and DEL."""
    if isinstance(texts, str):
        return json.dumps(texts, ensure_ascii=False).replace("\x7f", "\\u007f")
    return "".join(("[\n", *(f"  {_toml(text)},\n" for text in texts), "]"))


TABLE = MessageTable(FOLDER)
