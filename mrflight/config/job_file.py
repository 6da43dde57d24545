"""Reads a job file into a `JobSpec`, and names every mistake by the path of its key."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from mrflight.config.change_events import with_change_defaults
from mrflight.config.document_check import STORAGE, check_type, has_64_bits
from mrflight.config.input_spec import InputSpec, shown_log
from mrflight.config.kafka_input import check_input_keys, with_client_texts
from mrflight.config.overrides import set_key
from mrflight.config.spec import JobSection, JobSpec, StageSpec
from mrflight.errors import JobFileError

_S = TypeVar("_S", JobSpec, StageSpec)

_IS_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def load_job(path: Path, overrides: Mapping[str, Any] | None = None) -> JobSpec:
    """Return the job in a file, with ``overrides`` by dotted key (``shuffle.partitions``).

    Raises JobFileError if the file cannot be read or is not TOML, if a key is unknown or missing,
    or if a value has the wrong type.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise JobFileError(f"there is no file {path}{_similar_name(path)}") from error
    except IsADirectoryError as error:
        raise JobFileError(f"{path} is a folder; name the job file in it") from error
    except (OSError, UnicodeDecodeError) as error:
        raise JobFileError(f"{path} cannot be read: {error}") from error
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is a ValueError, too
        raise JobFileError(f"{path} is not TOML: {error}") from error
    for key, value in (overrides or {}).items():
        set_key(document, key.split("."), value)
    return decode_job(document)


def _similar_name(path: Path) -> str:
    """Return a hint for a job file that does not exist, if its folder has one of a similar name."""
    names = [each.name for each in path.parent.glob("*.toml")]
    near = difflib.get_close_matches(path.name, names, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def decode_job(document: Mapping[str, Any]) -> JobSpec:
    """Return the job that a parsed document describes; JobFileError as for `load_job`."""
    document = with_client_texts(_with_storage_texts(document))
    check_type(document, JobSpec, "")
    spec = msgspec.convert(document, JobSpec)
    for name, stage in spec.stages.items():
        _check_inputs(stage.inputs, f"stages.{name}.inputs", stage.sql)
        _check_functions(stage, f"stages.{name}")
    _check_inputs(spec.inputs, "inputs", spec.job.sql)
    _check_functions(spec.job, "job")
    stages = {
        name: _with_partitioner(stage, document["stages"][name], has_key=False)
        for name, stage in spec.stages.items()
    }
    spec = _with_partitioner(spec, document, has_key=bool(spec.output.keys))
    return with_change_defaults(msgspec.structs.replace(spec, stages=stages))


def _with_partitioner(section: _S, written: Mapping[str, Any], *, has_key: bool) -> _S:
    """Return a section that sends rows evenly to all partitions if nothing brings rows together."""
    has_key = has_key or any(each.key for each in section.inputs.values())
    if has_key or section.reduce is not None or "partitioner" in written.get("shuffle", {}):
        return section
    shuffle = msgspec.structs.replace(section.shuffle, partitioner="round_robin")
    return msgspec.structs.replace(section, shuffle=shuffle)


def _with_storage_texts(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the document with booleans and whole numbers of ``[storage]`` as text."""
    section = document.get(STORAGE)
    if not isinstance(section, Mapping):
        return document
    texts = {name: _text(value) for name, value in section.items()}
    return {**document, STORAGE: texts}


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) and has_64_bits(value) else value


def _check_inputs(inputs: Mapping[str, InputSpec], at: str, query: str | None) -> None:
    """Raise JobFileError for inputs whose keys exclude or need each other.

    Every input has either a path or a stage, and at most one of map and sql. Keys that say how
    files are read do not apply to the result of a stage. Only a ``query`` needs no input.
    """
    if not inputs and query is None:
        raise JobFileError(f"{at} must have at least one input; write [{at}.NAME]")
    for name, section in inputs.items():
        key = f"{at}.{name}"
        check_input_keys(key, section)
        if section.kafka is not None:
            _check_maps(key, section)
            continue
        _check_origin(section, key)
        if section.path in ("", []):
            raise JobFileError(f"{key}.path must have at least one file, folder or glob")
        if (rows := _rows_without_files(section)) and (file_key := _first_file_key(section)):
            raise JobFileError(
                f"{key}.{file_key} only applies to files, and {key} is {rows}; remove it, and "
                "select or cast columns in sql or a map"
            )
        _check_maps(key, section)


def _check_maps(key: str, section: InputSpec) -> None:
    if section.map is not None and section.sql is not None:
        raise JobFileError(f"{key}.sql and {key}.map exclude each other; keep one of them")
    if section.sql_table is not None and section.sql is None and section.filter is None:
        raise JobFileError(
            f"{key}.sql_table names the rows in {key}.sql, which is missing; write sql, too"
        )


def _check_origin(section: InputSpec, key: str) -> None:
    """Raise JobFileError unless the rows of an input come from one place."""
    if section.frame is not None:
        return
    named = [each for each in ("stage", "path", "log") if getattr(section, each) is not None]
    if not named:
        raise JobFileError(
            f'{key}.path is missing; write path = "..." in [{key}], stage = "..." for the result '
            'of a stage, or log = "..." for an event log'
        )
    if len(named) > 1:
        raise JobFileError(
            f"{key}.{named[0]} and {key}.{named[1]} exclude each other; keep one of them"
        )


def _check_functions(section: JobSection | StageSpec, at: str) -> None:
    """Raise JobFileError for functions without a query, and for names that a query cannot have."""
    if section.functions and section.sql is None:
        raise JobFileError(f"{at}.functions are for {at}.sql, which is missing; write sql, too")
    names = [name.lower() for name in section.functions]
    for name in section.functions:
        if not _IS_NAME.fullmatch(name):
            raise JobFileError(
                f"{at}.functions.{name}: a query cannot call it by this name; use letters, digits "
                "and '_'"
            )
        if names.count(name.lower()) > 1:
            raise JobFileError(
                f"{at}.functions.{name}: sql does not tell upper case in names of functions from "
                "lower case; give one another name"
            )


def _rows_without_files(section: InputSpec) -> str:
    """Return what the rows are, in words, if they are not those of files."""
    if section.frame is not None:
        return f"a {section.frame.kind}"
    if section.log is not None:
        return f"event log {shown_log(section.log)}"
    return "" if section.stage is None else f"the result of stage {section.stage}"


def _first_file_key(section: InputSpec) -> str | None:
    """Return the first key that is set and only applies to files, or None."""
    from mrflight.config.keyword_options import FILE_KEYS  # for few jobs

    # The columns of rows in memory can be selected as they are read.
    has_columns = section.frame is not None or section.log is not None
    unset = InputSpec(columns=section.columns if has_columns else None)
    return next((key for key in FILE_KEYS if getattr(section, key) != getattr(unset, key)), None)
