"""A DuckLake: sessions of its catalog, each of which attaches it for a moment."""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from mrflight.config.secret_reference import resolved
from mrflight.storage.disk import Disk, committed_syncs
from mrflight.storage.ducklake.address import LakeAddress
from mrflight.storage.ducklake.interpreter import find_interpreter
from mrflight.storage.ducklake.process import (
    CALL_TIMEOUT_S,
    LakeError,
    LakeProcess,
    LakeProcessLostError,
    Rows,
)
from mrflight.storage.ducklake.process_pool import borrowed_process
from mrflight.storage.ducklake.types import literal
from mrflight.storage.environment import with_environment
from mrflight.storage.option_names import BUCKETS, canonical, scheme_of
from mrflight.system.deadlines import NO_DEADLINE, Deadline

META = "__ducklake_metadata_lake"
"""The database of the tables that DuckLake's specification describes."""
BUSY_S = 30.0
"""How long a session waits for other processes that have the file of the catalog open."""
_DETACH = "DETACH DATABASE IF EXISTS lake"
_SECRET = "mrflight"
"""The name of the credentials for the bucket of the attached lake."""
_MAX_PAUSE_S = 0.2
_MIN_CALL_S = 1.0
"""The time for an answer although the deadline has passed."""
_SECRET_KEYS = {
    "aws_access_key_id": "KEY_ID",
    "aws_secret_access_key": "SECRET",
    "aws_session_token": "SESSION_TOKEN",
    "aws_token": "SESSION_TOKEN",
    "aws_region": "REGION",
}


def call_timeout_s(deadline: Deadline) -> float:
    """Return how long an answer is waited for."""
    return min(CALL_TIMEOUT_S, max(_MIN_CALL_S, deadline.left_s()))


class LakeSession:
    """An attached catalog, whose name in SQL is ``lake``."""

    def __init__(
        self, process: LakeProcess, address: LakeAddress, data_path: str, deadline: Deadline
    ) -> None:
        self._process = process
        self._address = address
        self._deadline = deadline
        self.data_path = data_path
        """The folder of all files, which ends with a slash."""

    def rows(self, sql: str) -> Rows:
        """Run a statement, and return its rows.

        Raises LakeError, without the catalog's password, and LakeProcessLostError.
        """
        try:
            return self._process.run(sql, call_timeout_s(self._deadline))
        except LakeProcessLostError:
            raise
        except LakeError as error:
            raise LakeError(self._address.hide(str(error)), error.kind) from None

    def meta(self, table: str) -> str:
        """Return the name in SQL of a table of the catalog."""
        return f"{META}.{table}"

    def sync(self) -> None:
        """Let what was committed survive a power loss, if the catalog is a file.

        DuckDB and SQLite sync their files, but not the names of these: without the folder, a new
        log may be gone, or a journal that undoes a commit be there again. Raises
        UnsyncedCommitError.
        """
        if self._address.file is not None:
            with committed_syncs(self._address.shown):
                Disk().sync_names([self._address.file])

    @contextmanager
    def transaction(self, folder: str) -> Iterator[None]:
        """Commit at the end of the block, or roll back if it raises.

        The files that DuckDB writes below the folder meanwhile, which it does not sync, are synced
        before. Raises LakeError.
        """
        known = _files(folder)
        self.rows("BEGIN")
        try:
            yield
            _sync_new(folder, known)
            self.rows("COMMIT")
        except BaseException:
            with suppress(LakeError):
                self.rows("ROLLBACK")
            raise


def _files(folder: str) -> set[str]:
    """Return the paths of the files below a folder; none if it is not on a disk."""
    if "://" in folder:
        return set()
    return {info.path for info in Disk().list(folder, recursive=True) if info.is_file}


def _sync_new(folder: str, known: set[str]) -> None:
    disk, new = Disk(), _files(folder) - known
    try:
        for path in new:
            disk.sync(path)
        disk.sync_names(new)
    except OSError as error:
        raise LakeError(
            f"new files in {folder} could not be synced to the disk: {error}"
        ) from error


class Lake:
    """A DuckLake by the address of its catalog.

    The catalog is attached only while a session lasts, because a file of DuckDB is locked then. So
    there is nothing to close: between sessions a lake has neither a process nor a file.
    """

    def __init__(
        self, address: LakeAddress, options: Mapping[str, str], data_path: str | None = None
    ) -> None:
        """``data_path`` is where the files of a new lake are: an absolute path, or a URL.

        Raises JobFileError if no Python with the ducklake extension is found.
        """
        self.address = address
        self.data_path = data_path
        self.is_encrypted = False
        self.options = options
        self._in_use = threading.Lock()
        self._python = find_interpreter()

    @property
    def url(self) -> str:
        """The URL of the catalog, without its password."""
        return self.address.shown

    @property
    def may_exist(self) -> bool:
        """False if the file of the catalog is not there; attaching it would create the file."""
        file = self.address.file
        return file is None or (os.path.exists(file) and os.path.getsize(file) > 0)

    @contextmanager
    def session(
        self, deadline: Deadline = NO_DEADLINE, *, create: bool = False
    ) -> Iterator[LakeSession]:
        """Attach the catalog for the time of the block, in one thread after the other.

        With ``create`` a lake is made if there is none. Raises LakeError, with `is_missing` if
        there is none.
        """
        with self._in_use, borrowed_process(self._python) as process:
            try:
                self._attach(process, deadline, create)
                assert self.data_path is not None, "the catalog has a data path"
                session = LakeSession(process, self.address, self.data_path, deadline)
                yield session
            finally:
                _detach(process, call_timeout_s(deadline))
            session.sync()

    def _attach(self, process: LakeProcess, deadline: Deadline, create: bool) -> None:
        busy_until = time.monotonic() + min(BUSY_S, deadline.left_s())
        timeout_s = call_timeout_s(deadline)
        names = ["ducklake", self.address.extension]
        process.load(*(name for name in names if name is not None), timeout_s=timeout_s)
        if create:
            self._make_file(process, timeout_s)
        while True:
            try:
                process.run(_DETACH, timeout_s)  # a try that failed halfway has left it attached
                process.run(self._attach_statement(process, create), timeout_s)
                self._read_data_path(process)
                return
            except LakeProcessLostError:
                raise
            except LakeError as error:
                if error.needs_httpfs and process.load("httpfs"):
                    continue
                if not error.is_conflict or time.monotonic() > busy_until:
                    raise LakeError(self.address.hide(str(error)), error.kind) from None
                time.sleep(random.uniform(0, _MAX_PAUSE_S))

    def _make_file(self, process: LakeProcess, timeout_s: float) -> None:
        """Make a new file of DuckDB at once, with its header.

        DuckDB creates a file before it locks it. Whoever opens it in between calls the empty file
        invalid, and if that takes the lock first, the file stays empty and is never valid.
        """
        file = self.address.file
        if file is None or self.address.extension is not None or os.path.exists(file):
            return
        new = f"{file}.{uuid.uuid4().hex}.new"
        try:
            process.run(f"ATTACH {literal(new)} AS new", timeout_s)
            process.run("DETACH new", timeout_s)
            with suppress(OSError):  # another writer was faster; or without links DuckDB makes it
                os.link(new, file)
        except LakeProcessLostError:
            raise
        except LakeError:
            return  # attaching fails for the same reason, and says so by the name of the catalog
        finally:
            with suppress(FileNotFoundError):
                os.unlink(new)

    def _attach_statement(self, process: LakeProcess, create: bool) -> str:
        settings = [f"CREATE_IF_NOT_EXISTS {str(create).lower()}"]
        if create and self.data_path is not None:
            settings.append(f"DATA_PATH {literal(self.data_path)}")
        if self.address.extension == "sqlite_scanner":
            settings.append("META_BUSY_TIMEOUT 2000")
        if create and self.data_path is not None:
            self._give_credentials(process, self.data_path)
        path = literal(f"ducklake:{self.address.attached}")
        return f"ATTACH {path} AS lake ({', '.join(settings)})"

    def _read_data_path(self, process: LakeProcess) -> None:
        """Learn where the files are, and let DuckDB read them if that is in a bucket."""
        query = f"SELECT key, value FROM {META}.ducklake_metadata WHERE scope IS NULL"
        metadata = dict(process.run(query))
        found: str = metadata["data_path"]
        self.data_path = found
        self.is_encrypted = metadata.get("encrypted") == "true"
        self._give_credentials(process, found)

    def _give_credentials(self, process: LakeProcess, data_path: str) -> None:
        if scheme_of(data_path) in BUCKETS:
            process.load("httpfs")
            process.run(bucket_secret(data_path, self.options))


def _detach(process: LakeProcess, timeout_s: float) -> None:
    """Leave nothing of a lake in a process that another lake may use next.

    A process that cannot do that is ended.
    """
    if not process.is_alive:
        return
    try:
        process.run(_DETACH, timeout_s)
        process.run(f"DROP TEMPORARY SECRET IF EXISTS {_SECRET}", timeout_s)
    except LakeError:
        process.close()


def bucket_secret(url: str, options: Mapping[str, str]) -> str:
    """Return the statement that gives DuckDB the credentials of ``[storage]`` for a bucket.

    Raises JobFileError if a reference to a secret names none.
    """
    named = with_environment(options, [url], os.environ)
    given = {_full_name(name): value for name, value in resolved(named, "storage").items()}
    settings = ["TYPE s3", "URL_STYLE 'path'", f"SCOPE {literal(f's3://{urlsplit(url).netloc}')}"]
    settings += [
        f"{key} {literal(given[name])}" for name, key in _SECRET_KEYS.items() if given.get(name)
    ]
    if endpoint := given.get("aws_endpoint_url"):
        parts = urlsplit(endpoint)
        uses_ssl = str(parts.scheme != "http").lower()
        settings += [f"ENDPOINT {literal(parts.netloc)}", f"USE_SSL {uses_ssl}"]
    return f"CREATE OR REPLACE SECRET {_SECRET} ({', '.join(settings)})"


def _full_name(option: str) -> str:
    """Return the name of a bucket's option with the prefix that may be left out."""
    name = canonical(option)
    return name if name.startswith("aws_") else f"aws_{name}"
