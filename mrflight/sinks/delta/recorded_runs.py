"""The runs that a Delta table has recorded as application transactions, and whether they count.

The number of a run's transaction is the version that committed it, or one before it: see
`DeltaCommit._overwrite`. A transaction stays recorded when a RESTORE undoes its version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mrflight.errors import CommitError
from mrflight.sinks.delta.restores import find_restore
from mrflight.sinks.delta.table import DeltaTable
from mrflight.system.signals import run_interruptibly

_RETENTION = "delta.setTransactionRetentionDuration"
"""The property of tables in which transactions that have ``lastUpdated`` expire."""

Actions = Sequence[Mapping[str, Any]]


def transaction_number(table: DeltaTable, app_id: str) -> int | None:
    """Return the number of the last transaction of ``app_id``; None if it has none.

    This reads the log again. deltalake hides a transaction that has expired, so all entries of the
    log are searched for one in a table where they do. Raises CommitError if the log is unreadable.
    """
    with table.errors():
        number: int | None = run_interruptibly(lambda: table.handle.transaction_version(app_id))
        if number is not None or _RETENTION not in table.handle.metadata().configuration:
            return number
    for version in range(table.version, -1, -1):
        actions = table.kept_actions(version)
        if actions is None:
            break
        if (number := _number(actions, app_id)) is not None:
            return number
    return None


def find_run(table: DeltaTable, app_id: str) -> int | None:
    """Return the version that ``app_id`` has committed and no RESTORE has undone.

    It is looked for in the history of the rows, which goes on behind a RESTORE with the version
    that was restored. If its entry was cleaned up, its transaction tells. Raises CommitError if the
    log is unreadable, or does not tell what a RESTORE has undone.
    """
    number, version = transaction_number(table, app_id), table.version
    while number is not None and version >= 0:
        actions = table.kept_actions(version)
        if actions is None:
            return number if number <= version else None
        if _number(actions, app_id) is not None:
            return version
        version = _version_before(table, version, actions)
    return None


def find_run_after(table: DeltaTable, version: int, app_id: str) -> int | None:
    """Do as `find_run` for an ``app_id`` that had committed nothing up to ``version``.

    This reads only the log entries after ``version``, unless one of them is a RESTORE.
    """
    for newer in range(version + 1, table.version + 1):
        actions = table.actions(newer)
        is_relevant = (
            actions is None  # the entry is gone
            or _number(actions, app_id) is not None
            or find_restore(newer, actions) is not None
        )
        if is_relevant:
            return find_run(table, app_id)
    return None


def _number(actions: Actions, app_id: str) -> int | None:
    """Return the number of the transaction of ``app_id`` in one log entry; None without one."""
    found = (action["txn"] for action in actions if action.get("txn"))
    return next((int(each["version"]) for each in found if each.get("appId") == app_id), None)


def _version_before(table: DeltaTable, version: int, actions: Actions) -> int:
    """Return the version whose rows this one has changed; -1 if it is the first one."""
    restore = find_restore(version, actions)
    if restore is None:
        return version - 1
    if restore.target is None:
        raise CommitError(
            f"{table.location.url} was restored (version {version} is a RESTORE), and its log does "
            "not tell to which version, so that it is not known whether the table has the rows of "
            "this run; look at the table, and restore it once more, to a version by its number, or "
            "run the job under another job.run_id"
        )
    return restore.target
