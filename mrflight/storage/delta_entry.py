"""Entries of a Delta table's log that we put into the store ourselves.

That of an append is written here, by the protocol of Delta. One that replaces a table is written by
deltalake into a scratch log on the local disk. In a store with commit locks only the holder of the
lock may put an entry. Also, the transactions of hops-deltalake (1.4) lack the files to remove and
the application's transaction id, unless they create or replace a table.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from mrflight.storage import hopsfs
from mrflight.storage.delta import (
    LOG,
    TableWrite,
    create_table,
    entry_name,
    scratch_table,
    table_uri,
    with_table_url,
)
from mrflight.storage.location import Location, locate

_LAST_CHECKPOINT = f"{LOG}/_last_checkpoint"

_PLAIN = "/!$&'()+,:;=@~"
"""Besides letters, digits and ``_.-`` the characters of a path that deltalake does not encode."""


def has_whole_transactions() -> bool:
    """Return whether the installed deltalake's transactions on an existing table are complete."""
    return not hopsfs.is_client()


def append_entry(write: TableWrite) -> bytes:
    """Return an entry that adds files to a table, whose schema stays as it is."""
    custom, transactions = write.properties.custom_metadata, write.properties.app_transactions
    actions = [
        {"commitInfo": {"timestamp": time.time_ns() // 1_000_000, **(custom or {})}},
        *({"add": _add(action)} for action in write.actions),
        *({"txn": _transaction(each)} for each in transactions or ()),
    ]
    return _as_write(actions, "Append", write.partition_by)


def _add(action: Any) -> dict[str, Any]:
    """Return the action of the log for an `AddAction`, with the path as deltalake encodes it.

    A file is removed under the path that it was added with, which deltalake (1.6) encodes by rules
    of its own.
    """
    return {
        "path": quote(action.path, safe=_PLAIN),
        "partitionValues": dict(action.partition_values),
        "size": action.size,
        "modificationTime": action.modification_time,
        "dataChange": action.data_change,
        "stats": action.stats,
    }


def _transaction(transaction: Any) -> dict[str, Any]:
    found = {"appId": transaction.app_id, "version": transaction.version}
    if transaction.last_updated is not None:
        found["lastUpdated"] = transaction.last_updated
    return found


def replacing_entry(
    location: Location, version: int, write: TableWrite, *, keeps_schema: bool
) -> bytes:
    """Return an entry that replaces all files of a table at ``version``, and its metadata.

    With ``keeps_schema`` the metadata stays. Reads the log since its last checkpoint; raises
    deltalake's errors, and OSError.
    """
    with scratch_table() as folder:
        here = locate(folder, Path(folder))
        for name in _names_until(location, version):
            with here.child(name).create() as copy:
                copy.write(location.child(name).read_bytes())
        create_table(here, write, "overwrite")
        entry = here.child(entry_name(version + 1)).read_bytes()
    if not keeps_schema:
        return with_table_url(entry, table_uri(location))
    kept = [action for action in _actions(entry) if not action.keys() & {"metaData", "protocol"}]
    return _as_write(kept, "Overwrite", write.partition_by)


def _names_until(location: Location, version: int) -> Iterator[str]:
    """Yield the files of the log that make up this version, relative to the table."""
    first = 0
    found = (info for info in location.child(LOG).walk() if info.is_file)
    names = {info.path[len(location.path.rstrip("/")) + 1 :] for info in found}
    if _LAST_CHECKPOINT in names:
        checkpoint = json.loads(location.child(_LAST_CHECKPOINT).read_bytes())
        if checkpoint["version"] <= version:
            first = checkpoint["version"]
            yield _LAST_CHECKPOINT
    for name in sorted(names):
        number = name.removeprefix(f"{LOG}/")[:20]
        is_needed = number.isdecimal() and first <= int(number) <= version
        if is_needed or name.startswith(f"{LOG}/_sidecars/"):
            yield name


def _actions(entry: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in entry.splitlines()]


def _as_write(actions: list[dict[str, Any]], mode: str, partition_by: list[str]) -> bytes:
    """Return the entry of these actions, with the ``commitInfo`` of a write."""
    for action in actions:
        if (note := action.get("commitInfo")) is not None:
            note["operation"] = "WRITE"
            note["operationParameters"] = {"mode": mode, "partitionBy": json.dumps(partition_by)}
    return b"".join(msgspec.json.encode(action) + b"\n" for action in actions)
