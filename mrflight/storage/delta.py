"""The one place where deltalake is imported, but for its files (`hdfs`).

And where what it raises becomes ours.
"""

from __future__ import annotations

import json
import posixpath
import re
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from mrflight.errors import CommitError, InputError, MrflightError, OutputError
from mrflight.storage import hopsfs
from mrflight.storage.failures import failure_of, is_store_failure, reason
from mrflight.storage.location import Location, locate
from mrflight.storage.store import PutIfAbsentStore
from mrflight.system.scratch import ScratchFolder

if TYPE_CHECKING:
    import pyarrow as pa

LOG = "_delta_log"
"""A table's log, relative to the table."""


_WITH_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
"""What a URL begins with; Hadoop writes ``file:/a/b``."""


def entry_name(version: int) -> str:
    """The file of the log that makes a version, relative to the table."""
    return f"{LOG}/{version:020}.json"


FIRST_ENTRY = entry_name(0)


def import_deltalake() -> ModuleType:
    """The deltalake module; OutputError where it is not installed, JobFileError where two are."""
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
    """A table as deltalake calls it."""
    if location.store.is_disk:
        return location.path
    return location.store.url(_encoded(location))  # it decodes what it gets


def why_unreachable(location: Location) -> str | None:
    """Why deltalake (1.6) would look for the table at another place, where that is so."""
    if location.store.is_disk:
        if unquote(location.path) != location.path:
            return (
                "deltalake takes a % with two hex digits in a folder's name for another character"
            )
    elif location.store.has_folders and _encoded(location) != location.path:
        return "deltalake finds no table in HDFS whose path has characters that a URL encodes"
    return None


def why_part_unreachable(table: Location, path: str) -> str | None:
    """Why the installed client would not find a part file of this name, where that is so."""
    if table.store.fence(table.path) is not None and "%" in path:
        return "hops-deltalake (1.4) finds no file whose name has a %"
    return None


def other_client_hint(location: Location) -> str:
    """Where else what hops-deltalake (1.4) cannot do to a table there can be done by mrflight."""
    elsewhere = "in an environment with 'mrflight[delta]' it works"
    if location.store.fence(location.path) is None:
        return elsewhere
    return f"no other client reaches a HopsFS; {elsewhere} on a stock HDFS"


def _encoded(location: Location) -> str:
    return quote(location.path, safe="/!$&'()*+,;=:@~")


def is_table(location: Location) -> bool:
    """Whether there is a table; raises what deltalake does."""
    deltalake = import_deltalake()
    location.store.await_answer(location.path)
    found: bool = deltalake.DeltaTable.is_deltatable(table_uri(location), storage_options(location))
    return found


def open_table(location: Location, version: int | None = None) -> Any:
    """A version, or its newest one, a `deltalake.DeltaTable`; raises what that does."""
    return import_deltalake().DeltaTable(
        table_uri(location), version, storage_options=storage_options(location)
    )


def data_file(table: Location, path: str) -> Location:
    """Where a file lies: the log has URLs, relative to the table unless they are whole."""
    path_or_url = unquote(path)
    if _WITH_SCHEME.match(path):
        return locate(path_or_url, Path(table.path), table.options)
    if path.startswith("/"):
        return table.at(posixpath.normpath(path_or_url))
    return table.child(path_or_url)


def stored_file(table: Location, path: str) -> Location:
    """As `data_file`, for who knows files of the table's store by their paths.

    InputError for a file that lies in another store, as a shallow clone of a table has them.
    """
    file = data_file(table, path)
    if file.store.identity != table.store.identity:
        raise InputError(
            f"{table.url} has a file in another store, {file.url}, which a job does not read; "
            "copy the table, with its files, to one store first"
        )
    return table.at(file.path)


def has_deletion_vectors(table: Any) -> bool:
    """Whether rows of a `deltalake.DeltaTable` are deleted by them, or may be.

    hops-deltalake (1.4) does not tell, so that a table which can have them is taken to.
    """
    if not hasattr(table, "deletion_vectors"):
        return True
    return any(batch.num_rows > 0 for batch in table.deletion_vectors())


def create_table(
    location: Location,
    schema: pa.Schema,
    actions: list[Any],
    mode: str,
    partition_by: list[str],
    properties: Any,
    **others: Any,
) -> None:
    """Commit a table's first version, or one that replaces all; raises what deltalake does.

    In a store that takes a file only where there is none a new table costs one request: deltalake
    writes the log's first entry here, and we put it there. By itself it asks ten times, most of
    them to load what it has just written (1.6).
    """
    store = location.store
    if mode == "error" and isinstance(store, PutIfAbsentStore) and store.puts_log_entries:
        entry = first_entry(location, schema, actions, partition_by, properties, **others)
        store.put_if_absent(location.child(FIRST_ENTRY).path, entry)
        return
    deltalake = import_deltalake()
    deltalake.transaction.create_table_with_add_actions(
        table_uri(location),
        deltalake.Schema.from_arrow(schema),
        actions,
        mode,
        partition_by,
        storage_options=storage_options(location),
        commit_properties=properties,
        **others,
    )


def can_remove_files() -> bool:
    """Whether a transaction may name single files to be taken out of the log."""
    return hasattr(import_deltalake().transaction, "RemoveAction")


@contextmanager
def scratch_table() -> Iterator[str]:
    """Yield an empty folder for a table that is only made to see what deltalake writes.

    It is gone at the end. If the process is killed, the next job on this machine removes it.
    """
    with ScratchFolder("log", Path(tempfile.gettempdir())) as scratch:
        folder = scratch.path / "table"
        folder.mkdir()
        yield str(folder)


def removable_paths(logged: Collection[str]) -> set[str]:
    """Those, of files by their paths in a log, that a transaction would remove.

    It takes the path that the store has and encodes it by its own rules (deltalake 1.6), which
    other writers do not follow in all: a file that is removed by another path than it was added
    by stays. So they are removed here, from a log that is nobody's, and what it says then is
    compared.
    """
    deltalake = import_deltalake()
    schema = deltalake.Schema([deltalake.Field("c", deltalake.schema.PrimitiveType("long"))])
    with scratch_table() as folder:
        deltalake.transaction.create_table_with_add_actions(folder, schema, [])
        actions = [deltalake.transaction.RemoveAction(unquote(path), False, 0) for path in logged]
        deltalake.DeltaTable(folder).create_write_transaction(actions, "append", schema)
        said = (Path(folder) / f"_delta_log/{1:020}.json").read_bytes()
    named = [json.loads(line).get("remove", {}).get("path") for line in said.splitlines()]
    return set(logged) & set(named)


def first_entry(
    location: Location,
    schema: pa.Schema,
    actions: list[Any],
    partition_by: list[str],
    properties: Any,
    **others: Any,
) -> bytes:
    """The log's first entry, as deltalake writes it; nothing is put there."""
    with scratch_table() as folder:
        here = locate(folder, Path(folder))
        create_table(here, schema, actions, "error", partition_by, properties, **others)
        entry = here.child(FIRST_ENTRY).read_bytes()
    return with_table_url(entry, table_uri(location))


def with_table_url(entry: bytes, uri: str) -> bytes:
    """An entry of a log whose note of what was done, for people, says where the table lies."""
    actions = [json.loads(line) for line in entry.splitlines()]
    for action in actions:
        if (parameters := action.get("commitInfo", {}).get("operationParameters")) is not None:
            parameters["location"] = uri
    return b"".join(json.dumps(action).encode() + b"\n" for action in actions)


def storage_options(location: Location) -> dict[str, str] | None:
    """What deltalake is given to reach the store."""
    return dict(location.options) or None


def as_store_error(location: Location, error: OSError) -> OSError:
    """What deltalake raised on a read of the table, as the store itself would have raised it.

    A damaged log is no OSError (deltalake 1.6), but for one on a disk.
    """
    if location.store.is_disk or is_store_failure(error):
        return error
    return failure_of(location.url, error)


@contextmanager
def delta_errors(what: str) -> Iterator[None]:
    """Raise CommitError, saying that ``what`` failed and why, for anything deltalake raises."""
    try:
        yield
    except MrflightError:
        raise
    # deltalake raises DeltaError, OSError, ValueError, and for some causes a bare Exception
    # (python/src/error.rs, the last arm of arrow_to_py).
    except Exception as error:
        raise CommitError(f"{what}: {reason(error)}") from error
