"""Removes rows from a Delta table once, however often it is tried."""

from __future__ import annotations

from functools import partial

from mrflight.errors import CommitError
from mrflight.sinks.delta.recorded_runs import transaction_number
from mrflight.sinks.delta.synced_log import commit_synced, sync_entry
from mrflight.sinks.delta.table import DeltaTable
from mrflight.storage import Location
from mrflight.storage.delta import delta_errors, import_deltalake

_MAX_TRIES = 10
"""A writer that appends meanwhile makes a try fail."""


def removal_count(table: DeltaTable, app_id: str) -> int:
    """Return the number of the last removal under an application id; 0 if there was none."""
    return transaction_number(table, app_id) or 0


def remove_rows(location: Location, predicate: str, app_id: str, number: int) -> None:
    """Delete the rows that an SQL condition is true for, as the removal of this number.

    Nothing is done if it was made already. Raises CommitError if other writers come in between each
    time, or the table cannot be read.
    """
    deltalake = import_deltalake()
    for _ in range(_MAX_TRIES):
        table = DeltaTable.load(location)
        if table is None:
            raise CommitError(f"{location.url}: the table is gone")
        if removal_count(table, app_id) >= number:
            sync_entry(location, table.version)
            return
        properties = deltalake.CommitProperties(
            max_commit_retries=0, app_transactions=[deltalake.Transaction(app_id, number)]
        )
        try:
            with delta_errors(f"rows of {location.url} cannot be deleted"):
                sync_entry(location, table.version)
                delete = partial(table.handle.delete, predicate, commit_properties=properties)
                commit_synced(table, delete, writes_parts=True)
            return
        except CommitError as error:
            if not isinstance(error.__cause__, deltalake.exceptions.CommitFailedError):
                raise
    raise CommitError(
        f"{location.url}: other writers came in between {_MAX_TRIES} times, and nothing was "
        "deleted; try again"
    )
