"""Syncs what deltalake writes to the log of a table on a disk, which deltalake (1.6) does not.

An entry is synced right after it: before that, a crash leaves the table without it. Whoever commits
a version has synced the one before, also if a writer that was killed had written that. Only then a
checkpoint is made, because it makes older entries superfluous.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import unquote

from mrflight.errors import CommitError
from mrflight.sinks.commit.job_files import sync_names
from mrflight.sinks.delta.table import DeltaTable
from mrflight.storage import Location
from mrflight.storage.delta import (
    LOG,
    delta_errors,
    entry_name,
    import_deltalake,
    no_hooks,
    open_table,
    stored_file,
)
from mrflight.storage.disk import committed_syncs
from mrflight.system.deadlines import NO_DEADLINE, Deadline

log = logging.getLogger(__name__)


def commit_synced(
    table: DeltaTable, write: Callable[..., object], *, writes_parts: bool = False
) -> None:
    """Let deltalake commit the version after that of the table, and sync it.

    ``write`` takes ``post_commithook_properties``. With ``writes_parts`` deltalake writes the part
    files as well. Raises what ``write`` raises, and UnsyncedCommitError.
    """
    location, version = table.location, table.version + 1
    is_due = table.is_checkpoint_due(version)
    if not location.store.is_disk:
        # Looking for expired entries examines every file of the log, and entries can only be
        # removed below a checkpoint, so deltalake does that when it writes one.
        hooks = import_deltalake().PostCommitHookProperties(
            cleanup_expired_logs=None if is_due else False
        )
        write(post_commithook_properties=hooks)
        return
    write(post_commithook_properties=no_hooks())
    if writes_parts:
        _sync_parts(table, version)
    sync_entry(location, version)
    if is_due:
        _checkpoint_after(location, version)


def sync_entry(table: Location, version: int) -> None:
    """Let a version of a table survive a power loss; raise UnsyncedCommitError."""
    if table.store.is_disk:
        _sync_content(table, version)
        with committed_syncs(f"{table.url}: version {version}"):
            table.sync_names([entry_name(version)])


def _sync_content(table: Location, version: int) -> None:
    with committed_syncs(f"{table.url}: version {version}"), suppress(FileNotFoundError):
        table.child(entry_name(version)).sync()  # it may be cleaned up, below a checkpoint


def sync_before(
    table: Location, version: int | None, paths: Collection[str], deadline: Deadline = NO_DEADLINE
) -> None:
    """Sync what the commit after a version relies on: that version, and the names of its files.

    Raises UnsyncedCommitError.
    """
    names = [*paths]
    if version is not None and table.store.is_disk:
        names.append(entry_name(version))
        deadline.run(
            partial(_sync_content, table, version),
            f"version {version} of {table.url} was synced, with nothing committed",
        )
    sync_names(table, names, deadline)


def write_checkpoint(table: Location, handle: Any) -> None:
    """Write a checkpoint of the version of a `deltalake.DeltaTable`, and sync it.

    Raises what deltalake raises, and UnsyncedCommitError.
    """
    version = int(handle.version())
    sync_entry(table, version)
    handle.create_checkpoint()
    if not table.store.is_disk:
        return
    prefix = f"{version:020}.checkpoint"
    with committed_syncs(f"{table.url}: the checkpoint of version {version}"):
        for info in table.child(LOG).walk():
            if info.is_file and info.base_name.startswith((prefix, "_last_checkpoint")):
                table.store.sync(info.path)
        table.child(LOG).sync()


def _checkpoint_after(location: Location, version: int) -> None:
    """Do what deltalake does after a commit: a checkpoint, and the removal of expired entries."""
    try:
        with delta_errors(f"{location.url}: version {version} got no checkpoint"):
            handle = open_table(location, version)
            write_checkpoint(location, handle)
            properties = handle.metadata().configuration
            if properties.get("delta.enableExpiredLogCleanup", "true") == "true":
                handle.cleanup_metadata()
    except CommitError as error:
        log.warning("%s", error)


def _sync_parts(table: DeltaTable, version: int) -> None:
    """Sync the part files that a version adds."""
    location = table.location
    with committed_syncs(f"{location.url}: version {version}"):
        added = [each["add"] for each in table.logged_actions(version) if "add" in each]
        paths = [stored_file(location, unquote(each["path"])).path for each in added]
        for path in paths:
            location.store.sync(path)
        location.store.sync_names(paths)
