"""A DuckLake: sessions of its catalog, each of which attaches it for a moment."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from mrflight.config.secret_reference import resolved
from mrflight.storage.ducklake.address import LakeAddress
from mrflight.storage.ducklake.interpreter import find_interpreter
from mrflight.storage.ducklake.process import (
    CALL_TIMEOUT_S,
    LakeError,
    LakeProcess,
    LakeProcessLostError,
    Rows,
)
from mrflight.storage.ducklake.types import literal
from mrflight.storage.environment import with_environment
from mrflight.storage.option_names import BUCKETS, canonical, scheme_of
from mrflight.system.closeable import Closeable
from mrflight.system.deadlines import NO_DEADLINE, Deadline

META = "__ducklake_metadata_lake"
"""The database of the tables that DuckLake's specification describes."""
BUSY_S = 30.0
"""How long a session waits for other processes that have the file of the catalog open."""
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
        self._generation = process.generation

    def rows(self, sql: str) -> Rows:
        """Run a statement, and return its rows.

        Raises LakeError, without the catalog's password, and LakeProcessLostError.
        """
        if self._process.generation != self._generation:
            raise LakeProcessLostError("the process of the catalog was started again")
        try:
            return self._process.run(sql, call_timeout_s(self._deadline))
        except LakeProcessLostError:
            raise
        except LakeError as error:
            raise LakeError(self._address.hide(str(error)), error.kind) from None

    def meta(self, table: str) -> str:
        """Return the name in SQL of a table of the catalog."""
        return f"{META}.{table}"

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit at the end of the block, or roll back if it raises."""
        self.rows("BEGIN")
        try:
            yield
            self.rows("COMMIT")
        except BaseException:
            with suppress(LakeError):
                self.rows("ROLLBACK")
            raise


class Lake(Closeable):
    """A DuckLake by the address of its catalog.

    The catalog is attached only while a session lasts, because a file of DuckDB is locked then.
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
        self._options = options
        self._with_httpfs = 0
        """The number of the process that has loaded the extension that reads buckets."""
        self._in_use = threading.Lock()
        names = ["ducklake", address.extension]
        extensions = [name for name in names if name is not None]
        self._process = LakeProcess(find_interpreter(), extensions)

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
        with self._in_use:
            yield from self._attached(deadline, create)

    def _attached(self, deadline: Deadline, create: bool) -> Iterator[LakeSession]:
        self._attach(deadline, create)
        assert self.data_path is not None, "the catalog has told it"
        session = LakeSession(self._process, self.address, self.data_path, deadline)
        try:
            yield session
        finally:
            with suppress(LakeError):
                session.rows("DETACH lake")

    def close(self) -> None:
        """End the process of the catalog."""
        self._process.close()

    def _attach(self, deadline: Deadline, create: bool) -> None:
        busy_until = time.monotonic() + min(BUSY_S, deadline.left_s())
        timeout_s = call_timeout_s(deadline)
        while True:
            try:
                with suppress(LakeError):  # a session that was cut off has left it attached
                    self._process.run("DETACH lake", timeout_s)
                self._process.run(self._attach_statement(create), timeout_s)
                self._read_data_path()
                return
            except LakeProcessLostError:
                raise
            except LakeError as error:
                if error.needs_httpfs and not self._has_httpfs():
                    continue
                if not error.is_conflict or time.monotonic() > busy_until:
                    raise LakeError(self.address.hide(str(error)), error.kind) from None
                time.sleep(random.uniform(0, _MAX_PAUSE_S))

    def _has_httpfs(self) -> bool:
        """Load the extension that reads buckets; return whether the process had it before."""
        if self._with_httpfs == self._process.generation:
            return True
        self._process.load("httpfs")
        self._with_httpfs = self._process.generation
        return False

    def _attach_statement(self, create: bool) -> str:
        settings = [f"CREATE_IF_NOT_EXISTS {str(create).lower()}"]
        if create and self.data_path is not None:
            settings.append(f"DATA_PATH {literal(self.data_path)}")
        if self.address.extension == "sqlite_scanner":
            settings.append("META_BUSY_TIMEOUT 2000")
        if create and self.data_path is not None and scheme_of(self.data_path) in BUCKETS:
            self._process.load("httpfs")
            self._process.run(bucket_secret(self.data_path, self._options))
        path = literal(f"ducklake:{self.address.attached}")
        return f"ATTACH {path} AS lake ({', '.join(settings)})"

    def _read_data_path(self) -> None:
        """Learn where the files are, and let DuckDB read them if that is in a bucket."""
        query = f"SELECT key, value FROM {META}.ducklake_metadata WHERE scope IS NULL"
        metadata = dict(self._process.run(query))
        found: str = metadata["data_path"]
        self.data_path = found
        self.is_encrypted = metadata.get("encrypted") == "true"
        if scheme_of(found) in BUCKETS:
            self._process.load("httpfs")
            self._process.run(bucket_secret(found, self._options))


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
    return f"CREATE OR REPLACE SECRET mrflight ({', '.join(settings)})"


def _full_name(option: str) -> str:
    """Return the name of a bucket's option with the prefix that may be left out."""
    name = canonical(option)
    return name if name.startswith("aws_") else f"aws_{name}"
