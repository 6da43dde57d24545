"""The address of a DuckLake catalog, as job files write it and as DuckDB attaches it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import msgspec

from mrflight.config.secret_reference import is_reference, resolve
from mrflight.errors import JobFileError
from mrflight.storage.synchronous_commit import check_synchronous_commit

_FILES = {"duckdb": "", "sqlite": "sqlite:"}
"""The catalogs that are files, with DuckDB's prefix of their paths."""
_SERVERS = ("postgresql", "postgres")
_FORMS = "duckdb:///lake.db, sqlite:///lake.sqlite or postgresql://user@host:5432/database"


class LakeAddress(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """Where a catalog is. The text of this object has no password."""

    shown: str
    """The URL for messages, without its password."""
    attached: str
    """The path that DuckDB attaches. It may hold a password."""
    file: str | None = None
    """The absolute path of the catalog if it is a file."""
    password: str = ""

    def __repr__(self) -> str:
        return f"LakeAddress({self.shown!r})"

    @property
    def extension(self) -> str | None:
        """The extension of DuckDB that reads the catalog; None if DuckDB itself does."""
        if self.file is None:
            return "postgres_scanner"
        return "sqlite_scanner" if self.attached.startswith("sqlite:") else None

    def hide(self, text: str) -> str:
        """Return a message without the password."""
        return text.replace(self.password, "...") if self.password else text


def parse_address(url: str, base: Path, key: str) -> LakeAddress:
    """Return the address of a catalog; relative paths of files start from ``base``.

    The URL may be a secret reference, and so may its password. Raises JobFileError, which names
    the ``key`` that has the URL.
    """
    text = resolve(url, key) if is_reference(url) else url
    scheme, separator, rest = text.partition("://")
    if separator and scheme in _FILES and rest.startswith("/") and rest != "/":
        path = str((base / rest[1:]).absolute())  # an absolute path has four slashes
        return LakeAddress(f"{scheme}:///{path}", f"{_FILES[scheme]}{path}", path)
    if separator and scheme in _SERVERS:
        check_synchronous_commit(text, key)
        return _server(urlsplit(text), key)
    raise JobFileError(f"{key} must be like {_FORMS}")


def _server(url: SplitResult, key: str) -> LakeAddress:
    try:
        host, port = url.hostname, url.port
    except ValueError as error:
        raise JobFileError(f"{key}: {error}; write {_FORMS}") from None
    database = unquote(url.path.removeprefix("/"))
    if not host or not database:
        raise JobFileError(f"{key} must name a host and a database: postgresql://host/database")
    user = unquote(url.username or "")
    password = unquote(url.password or "")
    if is_reference(password):
        password = resolve(password, key)
    settings = {"host": host, "port": str(port or 5432), "user": user, "password": password}
    settings |= {"dbname": database, **dict(parse_qsl(url.query))}
    place = f"{host}:{port or 5432}/{database}"
    shown = f"postgresql://{user}@{place}" if user else f"postgresql://{place}"
    return LakeAddress(shown, f"postgres:{_connection_string(settings)}", None, password)


def _connection_string(settings: Mapping[str, str]) -> str:
    """Return the settings as libpq writes them."""
    return " ".join(f"{name}={_quoted(value)}" for name, value in settings.items() if value)


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
