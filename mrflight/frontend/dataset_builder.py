"""Builds the document of a job that is written in Python, from its inputs and stages.

The document is what a job file would be parsed into, so that jobs of both kinds have the same
decoder and the same planner.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import to_builtins
from msgspec.structs import replace

from mrflight.config.row_steps import RowStep
from mrflight.errors import JobFileError
from mrflight.frontend.python_words import PythonWords

_SETTINGS = ("job", "shuffle", "cluster", "storage")
_IS_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class InputBuilder(msgspec.Struct, frozen=True, eq=False):
    """An input of a stage: files, or the result of an earlier stage."""

    name: str
    options: Mapping[str, Any]
    """The keys of ``[inputs.NAME]``, without ``stage``."""
    stage: StageBuilder | None = None
    table: str | None = None
    """The table's name in its sql. It is the input's name when the query was added, which may have
    changed since."""
    key_by: str | None = None
    """The method, and its argument, that has set the key, for messages."""

    @property
    def section(self) -> dict[str, Any]:
        """The section of the job file, without ``stage``."""
        renamed = {} if self.table in (None, self.name) else {"sql_table": self.table}
        return {**self.options, **renamed}

    @property
    def is_mapped(self) -> bool:
        """True if the rows are mapped already, so that another map is a further step."""
        return any(key in self.options for key in ("map", "sql", "steps"))

    def with_sql(self, query: str, table: str) -> InputBuilder:
        """Map the rows, which are not mapped yet, by a query."""
        return replace(self.with_options(sql=query), table=table)

    def with_step(self, step: RowStep) -> InputBuilder:
        """Add a step after the maps that are there."""
        return self.with_options(steps=[*self.options.get("steps", ()), to_builtins(step)])

    def with_key(self, columns: list[str], method: str) -> InputBuilder:
        """Set the key; messages say that ``method`` did, such as ``join(on=...)``."""
        return replace(self.with_options(key=columns), key_by=method)

    def with_options(self, **options: Any) -> InputBuilder:
        """Set these keys, too."""
        return replace(self, options={**self.options, **options})

    def without_options(self, *names: str) -> InputBuilder:
        """Set none of these keys."""
        return replace(
            self, options={key: value for key, value in self.options.items() if key not in names}
        )


class StageBuilder(msgspec.Struct, frozen=True, eq=False):
    """A shuffle and its reduce. A stage that two others read runs once."""

    name: str
    inputs: tuple[InputBuilder, ...]
    reduce: Mapping[str, Any]
    shuffle: Mapping[str, Any] = msgspec.field(default_factory=dict)
    repartitioned: frozenset[str] = frozenset()
    """The keys of ``shuffle`` that `Dataset.repartition` has set, for messages."""
    query: str | None = None
    """The query over the inputs that makes its result, in place of a reduce."""
    functions: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The functions that ``query`` calls, as texts, by their names in it."""

    @property
    def key_from(self) -> str:
        """What sets the key of inputs that have none of their own, or what would, for messages."""
        methods = {"group_by": "group_by", "join": "join(on=...)", "keep": "keep(key=...)"}
        methods |= {"function": "reduce(key=...)"}
        found = [words for key, words in methods.items() if self.reduce.get(key)]
        return found[0] if found else "repartition" if self.repartitioned else "key_by"

    @property
    def queried(self) -> dict[str, Any]:
        """The keys of its query."""
        if self.query is None:
            return {}
        return {"sql": self.query, **({"functions": self.functions} if self.functions else {})}

    @property
    def section(self) -> dict[str, Any]:
        """The sections of the job file, without the inputs."""
        sections = {"reduce": dict(self.reduce), "shuffle": dict(self.shuffle)}
        return {key: section for key, section in sections.items() if section}


def with_distinct_names(inputs: Iterable[InputBuilder]) -> tuple[InputBuilder, ...]:
    """Return the inputs with distinct names; the second of one name becomes ``NAME_2``."""
    names: set[str] = set()
    return tuple(replace(each, name=_free(each.name, names, "_")) for each in inputs)


def document_of(
    last: StageBuilder, output: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the document of a job that writes the result of a stage.

    ``settings`` are by dotted key. Raises JobFileError for one that is not a setting.
    """
    stages: dict[str, dict[str, Any]] = {}
    names: dict[int, str] = {}
    document = {
        "job": {"name": str(output.get("table", "")).rstrip("/").rpartition("/")[2] or "job"},
        "inputs": _inputs(last, stages, names),
        **last.section,
        "output": dict(output),
    }
    document["job"] |= last.queried
    if stages:
        document["stages"] = stages
    for key, value in settings.items():
        _set(document, key, value)
    return document


def words_of(last: StageBuilder, settings: Iterable[str]) -> PythonWords:
    """Return what the user has written for a job that writes the result of a stage."""
    names: dict[int, str] = {}
    _inputs(last, {}, names)
    inputs: set[str] = set()
    said: dict[str, str] = {}
    entries: set[str] = set()
    for prefix, stage in _stages_of(last, names).items():
        said |= {f"{prefix}shuffle.{key}": f"repartition({key}=...)" for key in stage.repartitioned}
        entries.update(stage.reduce.get("aggregate", ()))
        for each in stage.inputs:
            inputs.add(each.name)
            said[f"{prefix}inputs.{each.name}.key"] = each.key_by or stage.key_from
            for option in each.options.values():
                entries.update(option if isinstance(option, Mapping) else ())
    return PythonWords(said, frozenset(inputs), frozenset(settings), frozenset(entries))


def _stages_of(last: StageBuilder, names: Mapping[int, str]) -> dict[str, StageBuilder]:
    """Return all stages by the prefix of their keys, ``stages.NAME.`` or nothing."""
    found = {"": last}
    missing = [last]
    while missing:
        for each in missing.pop().inputs:
            if each.stage is None or (prefix := f"stages.{names[id(each.stage)]}.") in found:
                continue
            found[prefix] = each.stage
            missing.append(each.stage)
    return found


def name_of_files(path: str) -> str:
    """Return the default name of files: the last part of their path that can be a name in sql."""
    for part in reversed(path.split("/")):
        stem = part.partition(".")[0]
        if _IS_NAME.fullmatch(stem):
            return stem
    return "rows"


def _inputs(
    stage: StageBuilder, stages: dict[str, dict[str, Any]], names: dict[int, str]
) -> dict[str, dict[str, Any]]:
    """Return the inputs of a stage, and add the stages that they read."""
    inputs = {}
    for each in stage.inputs:
        inputs[each.name] = each.section
        if each.stage is not None:
            inputs[each.name]["stage"] = _add(each.stage, stages, names)
    return inputs


def _add(stage: StageBuilder, stages: dict[str, dict[str, Any]], names: dict[int, str]) -> str:
    """Add a stage after those that it reads, and return its name."""
    if id(stage) not in names:
        inputs = _inputs(stage, stages, names)
        name = _free(stage.name, set(stages), "-")
        names[id(stage)] = name
        stages[name] = {"inputs": inputs, **stage.section}
        stages[name] |= stage.queried
    return names[id(stage)]


def _free(name: str, taken: set[str], between: str) -> str:
    """Return a name that is not taken, with a number appended if needed, and add it to those."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}{between}{number}"
    taken.add(free)
    return free


def _set(document: dict[str, Any], key: str, value: Any) -> None:
    path = key.split(".")
    if path[0] not in _SETTINGS:
        raise JobFileError(
            f"{key} is not a setting; settings are in {', '.join(_SETTINGS[:-1])} and "
            f"{_SETTINGS[-1]}, such as 'cluster.workers'"
        )
    if len(path) == 1 and isinstance(value, Mapping):
        document[key] = {**document.get(key, {}), **value}
        return
    section = document
    for name in path[:-1]:
        section = section.setdefault(name, {})
        if not isinstance(section, dict):
            raise JobFileError(f"{key}: {name} is not a section")
    section[path[-1]] = value


def without_none(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are set."""
    return {key: value for key, value in options.items() if value is not None}


def named_aggregates(given: object, named: Mapping[str, object]) -> dict[str, object]:
    """Return the aggregates by their names; raise JobFileError if they are not written as such."""
    if given is not None and not isinstance(given, Mapping):
        raise JobFileError(
            f"agg: {reprlib.repr(given)} has no name; write agg(n={reprlib.repr(given)})"
        )
    requested = {**(given or {}), **named}
    for name, text in requested.items():
        if not isinstance(text, str):
            raise JobFileError(
                f"agg: {name} is {reprlib.repr(text)}, and not a text such as "
                f'"sum(weight)" or "count(*)"'
            )
    return requested
