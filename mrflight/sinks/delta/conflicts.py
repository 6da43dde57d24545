"""Conflicts: the changes of other writers to a Delta table since a job read it.

By Delta's rules an overwrite reads the whole table. So it conflicts with every change of the rows
or the schema that others commit before it, because it would remove them unseen. Files that were
only rearranged, as by a compaction, are no conflict.
"""

from __future__ import annotations

from typing import Any

from mrflight.sinks.delta.table import DeltaTable


def describe_change_since(table: DeltaTable, seen_version: int | None) -> str | None:
    """Describe the first change of rows or schema after ``seen_version``; None if there is none.

    ``seen_version`` is None if there was no table.
    """
    if seen_version is not None and table.version < seen_version:
        return f"the table was created again, and is at version {table.version} now"
    for version in range(0 if seen_version is None else seen_version + 1, table.version + 1):
        if change := describe_change(table, version):
            return change
    return None


def describe_change(table: DeltaTable, version: int) -> str | None:
    """Describe the changes of rows or schema in one version; None if there are none."""
    actions = table.actions(version)
    if actions is None:
        return f"version {version}, whose log entry cannot be read"
    changes = sorted({change for action in actions if (change := _change(action))})
    return f"version {version}, which {' and '.join(changes)}" if changes else None


def _change(action: dict[str, Any]) -> str | None:
    if "metaData" in action or "protocol" in action:
        return "changed the schema or the properties"
    if action.get("add", {}).get("dataChange", False):
        return "added rows"
    if action.get("remove", {}).get("dataChange", False):
        return "removed rows"
    return None
