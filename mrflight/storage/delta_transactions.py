"""The application transactions that the log of a Delta table has recorded.

deltalake (1.6) only tells the one of an id that is known, and reads the log once for each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from mrflight.errors import CommitError
from mrflight.storage.delta import LOG, entry_name
from mrflight.storage.location import Location

_CHECKPOINT = re.compile(
    r"(?P<version>\d{20})\.checkpoint"
    r"(\.(?P<part>\d{10})\.(?P<parts>\d{10})|\.[0-9a-fA-F-]{36})?\.(parquet|json)"
)


def read_transactions(table: Location, version: int, prefix: str) -> dict[str, int]:
    """Return the numbers of the transactions whose application id begins so, at this version.

    Reads the last checkpoint up to ``version`` and the entries after it. Raises CommitError if an
    entry is gone, and OSError or ArrowInvalid if the log cannot be read.
    """
    names = {info.base_name for info in table.child(LOG).children() if info.is_file}
    first, found = 0, dict[str, int]()
    if checkpoint := _last_checkpoint(names, version):
        first = int(checkpoint[0][:20]) + 1
        for name in checkpoint:
            found |= _in_checkpoint(table.child(f"{LOG}/{name}"))
    for number in range(first, version + 1):
        name = entry_name(number)
        if name.removeprefix(f"{LOG}/") not in names:
            raise CommitError(
                f"{table.url}: {name} is gone, and there is no checkpoint after it; what the table "
                "has recorded cannot be read"
            )
        lines = table.child(name).read_bytes().splitlines()
        found |= _of_actions([json.loads(line) for line in lines if line])
    return {app: number for app, number in found.items() if app.startswith(prefix)}


def _last_checkpoint(names: set[str], version: int) -> list[str]:
    """Return the files of the last complete checkpoint up to ``version``; none without one."""
    by_version: dict[int, list[tuple[str, int]]] = {}
    for name in names:
        if (match := _CHECKPOINT.fullmatch(name)) and int(match["version"]) <= version:
            parts = int(match["parts"] or 1)
            by_version.setdefault(int(match["version"]), []).append((name, parts))
    for number in sorted(by_version, reverse=True):
        by_parts: dict[int, list[str]] = {}
        for name, parts in by_version[number]:
            by_parts.setdefault(parts, []).append(name)
        if 1 in by_parts:
            return by_parts[1][:1]
        for parts, files in by_parts.items():
            if len(files) == parts:
                return sorted(files)
    return []


def _in_checkpoint(file: Location) -> dict[str, int]:
    if file.path.endswith(".json"):
        lines = file.read_bytes().splitlines()
        return _of_actions([json.loads(line) for line in lines if line])
    import pyarrow.parquet as pq

    with file.open_input() as opened:
        read = pq.ParquetFile(opened)
        if "txn" not in read.schema_arrow.names:
            return {}
        rows = read.read(columns=["txn"])["txn"].combine_chunks()
    return _of_actions([{"txn": row} for row in rows.drop_null().to_pylist()])


def _of_actions(actions: Sequence[dict[str, Any]]) -> dict[str, int]:
    found = (action["txn"] for action in actions if action.get("txn"))
    return {each["appId"]: int(each["version"]) for each in found}
