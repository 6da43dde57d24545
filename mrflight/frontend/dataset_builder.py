"""What a job written in Python comes to: drafts of inputs and stages, and the document of them.

The document is what a job file would be parsed to, so that one decoder and one planner are behind
both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from mrflight.config.pickled_functions import chain_functions, split_pickled
from mrflight.errors import JobFileError

_SETTINGS = ("job", "shuffle", "cluster", "storage")
_IS_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class InputDraft(msgspec.Struct, frozen=True, eq=False):
    """A table that a stage reads: files, or what an earlier stage has made."""

    name: str
    told: Mapping[str, Any]
    """What ``[inputs.NAME]`` would say, but for ``stage``."""
    stage: StageDraft | None = None
    table: str | None = None
    """What its sql calls the rows: their name when it was written, which may be another one by
    now."""

    @property
    def section(self) -> dict[str, Any]:
        """What the job file would say of it, but for ``stage``."""
        renamed = {} if self.table in (None, self.name) else {"sql_table": self.table}
        return {**self.told, **renamed}

    def mapped(self, text: str) -> InputDraft:
        """With a map, of what another one has made if there is one; JobFileError if it cannot."""
        before = self.told.get("map")
        both = text if before is None else chain_functions(before, text)
        if both is None or "sql" in self.told:
            by = "sql" if before is None else _shown(before)
            raise JobFileError(
                f"inputs.{self.name}.map: these rows are mapped by {by} already; do both in one "
                "function, or put .repartition() in between"
            )
        return self.with_told(map=both)

    def queried(self, query: str, table: str) -> InputDraft:
        """With sql in place of a map, which calls the rows so; JobFileError if it cannot be."""
        if "map" in self.told or "sql" in self.told:
            raise JobFileError(
                f"inputs.{self.name}.sql: these rows are mapped already; do both in one, "
                "or put .repartition() in between"
            )
        return replace(self.with_told(sql=query), table=table)

    def with_told(self, **told: Any) -> InputDraft:
        """With these keys as well."""
        return replace(self, told={**self.told, **told})


class StageDraft(msgspec.Struct, frozen=True, eq=False):
    """A shuffle and what is made of each partition. One that two others read is made once."""

    name: str
    inputs: tuple[InputDraft, ...]
    reduce: Mapping[str, Any]
    shuffle: Mapping[str, Any]

    @property
    def section(self) -> dict[str, Any]:
        """What the job file would say of it, but for the stages that are its inputs."""
        sections = {"reduce": dict(self.reduce), "shuffle": dict(self.shuffle)}
        return {key: section for key, section in sections.items() if section}


def with_distinct_names(inputs: Iterable[InputDraft]) -> tuple[InputDraft, ...]:
    """The inputs of one stage; of those with one name the second is called ``NAME_2``."""
    names: set[str] = set()
    return tuple(replace(each, name=_free(each.name, names, "_")) for each in inputs)


def document_of(
    last: StageDraft, output: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """The job that writes what the stage makes; ``settings`` are by dotted key.

    JobFileError for a setting that belongs to no section of settings.
    """
    stages: dict[str, dict[str, Any]] = {}
    names: dict[int, str] = {}
    document = {
        "job": {"name": str(output.get("table", "")).rstrip("/").rpartition("/")[2] or "job"},
        "inputs": _inputs(last, stages, names),
        **last.section,
        "output": dict(output),
    }
    if stages:
        document["stages"] = stages
    for key, value in settings.items():
        _set(document, key, value)
    return document


def name_of_files(path: str) -> str:
    """What rows of files are called: the last part of their path that can be a name in sql."""
    for part in reversed(path.split("/")):
        stem = part.partition(".")[0]
        if _IS_NAME.fullmatch(stem):
            return stem
    return "rows"


def _inputs(
    stage: StageDraft, stages: dict[str, dict[str, Any]], names: dict[int, str]
) -> dict[str, dict[str, Any]]:
    """The inputs of a stage; the stages that they read are put before it."""
    inputs = {}
    for each in stage.inputs:
        inputs[each.name] = each.section
        if each.stage is not None:
            inputs[each.name]["stage"] = _add(each.stage, stages, names)
    return inputs


def _add(stage: StageDraft, stages: dict[str, dict[str, Any]], names: dict[int, str]) -> str:
    """Add a stage behind those that it reads; its name."""
    if id(stage) not in names:
        inputs = _inputs(stage, stages, names)
        name = _free(stage.name, set(stages), "-")
        names[id(stage)] = name
        stages[name] = {"inputs": inputs, **stage.section}
    return names[id(stage)]


def _free(name: str, taken: set[str], between: str) -> str:
    """The name, or with the first number behind it that makes it another one; it is taken then."""
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
            f"{key}: is no setting; those are of {', '.join(_SETTINGS[:-1])} and {_SETTINGS[-1]}, "
            "such as 'cluster.workers'"
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


def _shown(text: str) -> str:
    """A function as messages have it."""
    parts = split_pickled(text)
    return parts[0] if parts else text
