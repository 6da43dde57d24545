"""The only module that imports deltalake, except for its file handler (`hdfs`).

It also translates deltalake's errors into ours.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import msgspec

from mrflight.config.secret_reference import resolved
from mrflight.errors import CommitError, InputError, MrflightError, OutputError
from mrflight.storage import hopsfs
from mrflight.storage.failures import failure_of, is_store_failure, reason
from mrflight.storage.location import Location, locate
from mrflight.storage.store import PutIfAbsentStore
from mrflight.system.scratch import ScratchFolder, temporary_folder

if TYPE_CHECKING:
    import pyarrow as pa

LOG = "_delta_log"
"""The folder of a table's log, relative to the table."""


_WITH_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
"""The beginning of a URL; Hadoop writes ``file:/a/b``."""


def entry_name(version: int) -> str:
    """Return the log entry of a version, relative to the table."""
    return f"{LOG}/{version:020}.json"


FIRST_ENTRY = entry_name(0)


def import_deltalake() -> ModuleType:
    """Return the deltalake module; raise OutputError without it, JobFileError if there are two."""
    hopsfs.check_one_client()
    try:
        import deltalake
        import deltalake.transaction
    except ImportError as error:
        raise OutputError(
            "Delta tables need deltalake, which is not installed: pip install 'mrflight[delta]'"
        ) from error
    return deltalake


def table_uri(location: Location) -> str:
    """Return the table's URI for deltalake."""
    if location.store.is_disk:
        return location.path
    return location.store.url(_encoded(location))  # deltalake decodes it


def why_unreachable(location: Location) -> str | None:
    """Return why deltalake (1.6) would look for the table in another place; None if it does not."""
    if location.store.is_disk:
        if unquote(location.path) != location.path:
            return (
                "deltalake decodes a % with two hex digits in a folder's name as another character"
            )
    elif location.store.has_folders and _encoded(location) != location.path:
        return "deltalake finds no table in HDFS if its path has characters that a URL encodes"
    return None


def why_part_unreachable(table: Location, path: str) -> str | None:
    """Return why the installed client would not find a part file of this name; None if it would."""
    if table.store.lock_name(table.path) is not None and "%" in path:
        return "hops-deltalake (1.4) does not find a file whose name has a %"
    return None


def other_client_hint(location: Location) -> str:
    """Return a hint where mrflight can do to a table there what hops-deltalake (1.4) cannot."""
    elsewhere = "it works in an environment with 'mrflight[delta]'"
    if location.store.lock_name(location.path) is None:
        return elsewhere
    return f"no other client reaches a HopsFS; {elsewhere} on a stock HDFS"


def _encoded(location: Location) -> str:
    return quote(location.path, safe="/!$&'()*+,;=:@~")


def is_table(location: Location) -> bool:
    """Return whether there is a table; raises deltalake's errors."""
    deltalake = import_deltalake()
    location.store.await_answer(location.path)
    found: bool = deltalake.DeltaTable.is_deltatable(table_uri(location), storage_options(location))
    return found


def open_table(location: Location, version: int | None = None) -> Any:
    """Open a version, or the newest one, as a `deltalake.DeltaTable`; raises deltalake's errors."""
    return import_deltalake().DeltaTable(
        table_uri(location), version, storage_options=storage_options(location)
    )


def data_file(table: Location, path: str) -> Location:
    """Return the location of a data file; the log has absolute URLs, or relative to the table.

    Raises InputError for a file at another host, or on this machine's disk, that the log of a table
    elsewhere names. Another bucket is reached at the endpoint that the caller has set.
    """
    path_or_url = unquote(path)
    if _WITH_SCHEME.match(path):
        file = locate(path_or_url, Path(table.path), table.options)
        is_other = file.store.identity != table.store.identity
        if is_other and (file.store.is_disk or file.store.names_host):
            raise InputError(
                f"{table.url} has a file that is not opened because the log names it, {file.url}; "
                "copy the table and its files to one store first"
            )
        return file
    if path.startswith("/"):
        return table.at(posixpath.normpath(path_or_url))
    return table.child(path_or_url)


def stored_file(table: Location, path: str) -> Location:
    """Return the location of a data file that is in the table's own store.

    Raises InputError for a file in another store, which a shallow clone of a table may have.
    """
    file = data_file(table, path)
    if file.store.identity != table.store.identity:
        raise InputError(
            f"{table.url} has a file in another store, {file.url}, which jobs do not read; "
            "copy the table and its files to one store first"
        )
    return table.at(file.path)


def has_deletion_vectors(table: Any) -> bool:
    """Return whether deletion vectors delete rows of a `deltalake.DeltaTable`, or may do so.

    hops-deltalake (1.4) does not say, so every table that can have them counts as having them.
    """
    if not hasattr(table, "deletion_vectors"):
        return True
    return any(batch.num_rows > 0 for batch in table.deletion_vectors())


class TableWrite(msgspec.Struct, frozen=True):
    """The content of a commit to the log of a table."""

    schema: pa.Schema
    actions: list[Any]
    """The `deltalake.transaction.AddAction` of each new file."""
    partition_by: list[str]
    properties: Any
    """The `deltalake.CommitProperties`."""
    metadata: dict[str, Any] = {}
    """The result of `kept_metadata`, for a commit that replaces a table."""


def kept_metadata(table: Any) -> dict[str, Any]:
    """Return the metadata that a `deltalake.DeltaTable` keeps when a commit replaces its rows."""
    before = table.metadata()
    return {
        "name": before.name,
        "description": before.description,
        "configuration": before.configuration,
    }


def no_hooks() -> Any:
    """Return the properties of a commit after which deltalake (1.6) does nothing more."""
    return import_deltalake().PostCommitHookProperties(
        create_checkpoint=False, cleanup_expired_logs=False
    )


def create_table(location: Location, write: TableWrite, mode: str) -> None:
    """Commit a table's first version, or one that replaces everything; raises deltalake's errors.

    With `PutIfAbsentStore.puts_log_entries` a new table costs one request: deltalake writes the
    first entry of the log locally, and we put it into the store. On its own deltalake (1.6) makes
    ten requests, most of them to load what it has just written.
    """
    store = location.store
    if mode == "error" and isinstance(store, PutIfAbsentStore) and store.puts_log_entries:
        entry = first_entry(location, write)
        store.put_if_absent(location.child(FIRST_ENTRY).path, entry)
        return
    deltalake = import_deltalake()
    deltalake.transaction.create_table_with_add_actions(
        table_uri(location),
        deltalake.Schema.from_arrow(write.schema),
        write.actions,
        mode,
        write.partition_by,
        storage_options=storage_options(location),
        commit_properties=write.properties,
        post_commithook_properties=no_hooks() if store.is_disk else None,
        **write.metadata,
    )


def can_remove_files() -> bool:
    """Return whether a transaction can remove single files from the table."""
    return hasattr(import_deltalake().transaction, "RemoveAction")


@contextmanager
def scratch_table() -> Iterator[str]:
    """Yield an empty folder for a table that is made only to see what deltalake writes.

    The folder is removed at the end. If the process is killed, the next job on this machine does
    that.
    """
    with ScratchFolder("log", temporary_folder()) as scratch:
        folder = scratch.path / "table"
        folder.mkdir()
        yield str(folder)


def removable_paths(logged: Collection[str]) -> set[str]:
    """Return which of these paths of a log a transaction of deltalake would remove.

    deltalake (1.6) takes the path in the store and encodes it by its own rules. Other writers may
    encode it differently, and a file that is removed under another path than it was added stays in
    the table. So this removes the files from a scratch table and compares the paths in its log.
    """
    deltalake = import_deltalake()
    schema = deltalake.Schema([deltalake.Field("c", deltalake.schema.PrimitiveType("long"))])
    with scratch_table() as folder:
        deltalake.transaction.create_table_with_add_actions(folder, schema, [])
        actions = [deltalake.transaction.RemoveAction(unquote(path), False, 0) for path in logged]
        deltalake.DeltaTable(folder).create_write_transaction(actions, "append", schema)
        entry = (Path(folder) / f"_delta_log/{1:020}.json").read_bytes()
    named = [json.loads(line).get("remove", {}).get("path") for line in entry.splitlines()]
    return set(logged) & set(named)


def first_entry(location: Location, write: TableWrite) -> bytes:
    """Return the first entry of a log as deltalake writes it; the table itself is not touched."""
    with scratch_table() as folder:
        here = locate(folder, Path(folder))
        create_table(here, write, "error")
        entry = here.child(FIRST_ENTRY).read_bytes()
    return with_table_url(entry, table_uri(location))


def with_table_url(entry: bytes, uri: str) -> bytes:
    """Return the entry with the table's URL in its ``commitInfo``, which is informational."""
    actions = [json.loads(line) for line in entry.splitlines()]
    for action in actions:
        if (parameters := action.get("commitInfo", {}).get("operationParameters")) is not None:
            parameters["location"] = uri
    return b"".join(json.dumps(action).encode() + b"\n" for action in actions)


def storage_options(location: Location) -> dict[str, str] | None:
    """Return deltalake's options for reaching the store."""
    return resolved(location.options, "storage") or None


def as_store_error(location: Location, error: OSError) -> OSError:
    """Return the error of a read of the table by deltalake as the store would have raised it.

    For a damaged log deltalake (1.6) raises an OSError only on a disk.
    """
    if location.store.is_disk or is_store_failure(error):
        return error
    return failure_of(location.url, error)


@contextmanager
def delta_errors(what: str) -> Iterator[None]:
    """Raise CommitError with ``what`` failed and the reason for every error of deltalake."""
    try:
        yield
    except MrflightError:
        raise
    # deltalake raises DeltaError, OSError, ValueError and, for some causes, a bare Exception
    # (python/src/error.rs, the last arm of arrow_to_py).
    except Exception as error:
        raise CommitError(f"{what}: {reason(error)}") from error
