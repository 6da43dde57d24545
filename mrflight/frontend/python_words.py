"""Says in the words of Python what a message says in those of a job file.

A mistake in a job is reported by the key of a job file, ``inputs.visits.types.ms``. A user of the
Python API never wrote that key, but ``read(types=...)``. This is the one place where such keys
become the names of methods and arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import fields

from mrflight.config.input_spec import InputSpec
from mrflight.config.keyword_options import FILE_KEYS
from mrflight.config.output_section import OutputSection
from mrflight.config.reduce_section import ReduceSection
from mrflight.config.spec import ShuffleSection

_METHODS = {
    "aggregate": "agg",
    "function": "reduce",
    "left": "join",
    "right": "join",
    "order_by": "keep(order_by=...)",
}
"""What sets a key of ``[reduce]``, unless it is the method of the same name."""

_PHRASES = (
    (re.compile(r"set output\.format to that"), "use the method that writes those"),
    (re.compile(r"set output\.format to (\w+)"), r"use write_\1"),
    (re.compile(r"do that in \[reduce\]"), "do that in a step such as group_by, or sql with a key"),
    (re.compile(r"combine them in \[reduce\]"), "combine them in a step before"),
    (re.compile(r",? \[stages\.NAME\]"), ""),
    (re.compile(r"\[reduce\]"), "the step"),
    (re.compile(r"\[inputs\.NAME\]"), "dataset"),
    (re.compile(r"set broadcast(?: = true)? for"), "use broadcast() for"),
    (re.compile(r"^stages\.(.*): a stage's name"), r"alias(\1): the name of rows after a shuffle"),
    (re.compile(r"set key = \[\.\.\.\]"), "name the columns"),
    (re.compile(r"\b(?:job|stages\.[\w-]+)\.functions\.(\w+)"), r"sql(\1=...)"),
    (re.compile(r"beside the job file"), "in the current folder"),
)
"""What has no name in Python, in the order in which it is replaced."""

_VALUE = r"""(?: = (?P<value>true|false|\d+|'[^']*'|"[^"]*"|\[[^]]*\]))?"""


class PythonWords(msgspec.Struct, frozen=True):
    """What the user of a dataset has written."""

    said: Mapping[str, str]
    """The method that has set a key, by the key's full path, if several methods can."""
    inputs: frozenset[str]
    """The names of all inputs."""
    settings: frozenset[str]
    """The dotted keys that were set by ``with_settings``, which are left as they are."""
    entries: frozenset[str]
    """The keys of tables, such as the names of columns in ``types`` and of aggregates."""

    def translate(self, message: str) -> str:
        """Return the message with methods and arguments in place of keys of a job file.

        A user's own traceback is left as it is.
        """
        head, traceback, rest = message.partition("\nTraceback")
        for pattern, words in _PHRASES:
            head = pattern.sub(words, head)
        return _key_path(self).sub(self._words, head) + traceback + rest

    def _words(self, found: re.Match[str]) -> str:
        """Return the words for a key path."""
        if found[0] in self.settings:
            return found[0]
        part = found.groupdict()
        value = _in_python(part["value"] or ("[...]" if part["index"] else "..."))
        if part["section"] is None:
            return self._of_input(part, value)
        if part["section"] == "shuffle":
            return self._of_shuffle(part, value)
        if part["section"] == "output":
            return str(part["key"]) if part["value"] is None else f"{part['key']}={value}"
        return _of_reduce(part, value)

    def _of_input(self, part: Mapping[str, Any], value: str) -> str:
        name, key = part["input"], part["input_key"]
        if key is None:
            return str(name)
        words = self.said.get(f"{part['stage'] or ''}inputs.{name}.{key}", key)
        if key == "path":
            words = "read(path)"
        elif key in FILE_KEYS:
            words = f"read({key}={_entry(part, value)})"
        return f"{words} of {name}" if len(self.inputs) > 1 and name != "*" else words

    def _of_shuffle(self, part: Mapping[str, Any], value: str) -> str:
        path = f"shuffle.{part['key']}"
        if path in self.settings:
            return path if part["value"] is None else f"{path} = {value}"
        said = self.said.get(f"{part['stage'] or ''}{path}")
        return said or f"with_shuffle({part['key']}={value})"


def _of_reduce(part: Mapping[str, Any], value: str) -> str:
    key, entry = part["key"], part["entry"]
    if key == "aggregate" and entry is not None:
        return f"agg({entry}={value})" if entry.isidentifier() else f"agg({_entry(part, value)})"
    words = _METHODS.get(key, key)
    return words if part["value"] is None else f"{words}({value})"


def _entry(part: Mapping[str, Any], value: str) -> str:
    """Return the value, within a dictionary if the key path names an entry of one."""
    return value if part["entry"] is None else f"{{{part['entry']!r}: {value}}}"


def _key_path(words: PythonWords) -> re.Pattern[str]:
    """Return the pattern of a key path; what looks like a part of a file's path is none."""
    of_inputs = _any_of(_keys(InputSpec))
    sections: dict[str, type[msgspec.Struct]] = {
        "reduce": ReduceSection,
        "output": OutputSection,
        "shuffle": ShuffleSection,
    }
    others = "|".join(
        rf"{section}\.(?:(?:{_any_of(_keys(kind))})(?!\w)|\w+(?=: unknown key))"
        for section, kind in sections.items()
    )
    names = _any_of(words.inputs | {"rows", "*"})
    entries = "|".join(filter(None, [_any_of(words.entries), r"[^\s:;,.]+"]))
    entry = rf"(?:\.(?P<entry>{entries})|(?P<index>\[[^]]*\]))*"
    return re.compile(
        rf"(?<![\w/.\\'\"-])(?P<stage>stages\.[\w.-]+?\.)?"
        rf"(?:inputs\.(?P<input>{names})(?![\w])(?:\.(?P<input_key>{of_inputs})(?!\w))?"
        rf"|(?={others})(?P<section>reduce|output|shuffle)\.(?P<key>\w+))"
        rf"{entry}{_VALUE}"
    )


def _any_of(texts: Iterable[str]) -> str:
    """Return a pattern of any of the texts, the longest first."""
    return "|".join(sorted(map(re.escape, texts), key=len, reverse=True))


def _keys(section: type[msgspec.Struct]) -> list[str]:
    return [field.name for field in fields(section)]


def _in_python(value: str) -> str:
    return {"true": "True", "false": "False"}.get(value, value)
