"""Entries of a Delta table's log that are to be put there by us.

deltalake writes them, into a log on this machine's disk. In a fenced store nothing else may put an
entry; and hops-deltalake (1.4) leaves out of its own transactions what they are to remove, and
whose they are, but for those that create or replace a table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mrflight.storage import hopsfs
from mrflight.storage.delta import (
    LOG,
    create_table,
    entry_name,
    first_entry,
    scratch_table,
    table_uri,
    with_table_url,
)
from mrflight.storage.location import Location, locate

if TYPE_CHECKING:
    import pyarrow as pa

_LAST_CHECKPOINT = f"{LOG}/_last_checkpoint"


def has_whole_transactions() -> bool:
    """Whether the installed deltalake's own transactions on a table that is there can be used."""
    return not hopsfs.is_client()


def append_entry(
    location: Location,
    schema: pa.Schema,
    actions: list[Any],
    partition_by: list[str],
    properties: Any,
) -> bytes:
    """One that adds files to a table of this schema; raises what deltalake does."""
    first = first_entry(location, schema, actions, partition_by, properties)
    said = [action for action in _actions(first) if action.keys() & {"add", "commitInfo", "txn"}]
    return _as_write(said, "Append", partition_by)


def replacing_entry(
    location: Location,
    version: int,
    schema: pa.Schema,
    actions: list[Any],
    partition_by: list[str],
    properties: Any,
    *,
    keeps_schema: bool,
    **others: Any,
) -> bytes:
    """One that replaces all files of a table at ``version``, and what it says of itself.

    But for that with ``keeps_schema``. Reads the log since its last checkpoint; raises what
    deltalake does, and OSError.
    """
    with scratch_table() as folder:
        here = locate(folder, Path(folder))
        for name in _names_until(location, version):
            with here.child(name).create() as copy:
                copy.write(location.child(name).read_bytes())
        create_table(here, schema, actions, "overwrite", partition_by, properties, **others)
        entry = here.child(entry_name(version + 1)).read_bytes()
    if not keeps_schema:
        return with_table_url(entry, table_uri(location))
    said = [action for action in _actions(entry) if not action.keys() & {"metaData", "protocol"}]
    return _as_write(said, "Overwrite", partition_by)


def _names_until(location: Location, version: int) -> Iterator[str]:
    """The files of the log that make this version, relative to the table."""
    begins = 0
    names = {info.path[len(location.path.rstrip("/")) + 1 :] for info in _files(location)}
    if _LAST_CHECKPOINT in names:
        said = json.loads(location.child(_LAST_CHECKPOINT).read_bytes())
        if said["version"] <= version:
            begins = said["version"]
            yield _LAST_CHECKPOINT
    for name in sorted(names):
        number = name.removeprefix(f"{LOG}/")[:20]
        is_needed = number.isdecimal() and begins <= int(number) <= version
        if is_needed or name.startswith(f"{LOG}/_sidecars/"):
            yield name


def _files(location: Location) -> Iterator[Any]:
    return (info for info in location.child(LOG).walk() if info.is_file)


def _actions(entry: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in entry.splitlines()]


def _as_write(said: list[dict[str, Any]], mode: str, partition_by: list[str]) -> bytes:
    """The entry, whose note of what was done, for people, is that of a write."""
    for action in said:
        if (note := action.get("commitInfo")) is not None:
            note["operation"] = "WRITE"
            note["operationParameters"] = {"mode": mode, "partitionBy": json.dumps(partition_by)}
    return b"".join(json.dumps(action).encode() + b"\n" for action in said)
