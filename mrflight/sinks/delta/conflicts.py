"""What other writers did to a Delta table since a job looked at it.

By Delta's rules an overwrite reads the whole table, so that it conflicts with
what others commit before it: rows that it would take away unseen, and changes
of the schema. Files that were only rearranged (compacted) are no conflict.
"""

from __future__ import annotations

from typing import Any

from mrflight.sinks.delta.table import DeltaTable


def change_since(table: DeltaTable, seen_version: int | None) -> str | None:
    """The first change of rows or schema after ``seen_version``, in words; None if there is none.

    ``seen_version`` is None where there was no table.
    """
    if seen_version is not None and table.version < seen_version:
        return f"the table was made anew, and is at version {table.version} now"
    for version in range(0 if seen_version is None else seen_version + 1, table.version + 1):
        if change := change_in(table, version):
            return change
    return None


def change_in(table: DeltaTable, version: int) -> str | None:
    """What one version changed of rows or schema, in words; None if it did not."""
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
