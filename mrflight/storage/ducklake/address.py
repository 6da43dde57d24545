"""The address of a DuckLake catalog, as job files write it and as DuckDB attaches it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from mrflight.config.secret_reference import is_reference, resolve
from mrflight.config.service_uri import ServiceUri, hide_secrets
from mrflight.errors import JobFileError
from mrflight.storage.synchronous_commit import check_synchronous_commit

_FILES = {"duckdb": "", "sqlite": "sqlite:"}
"""The catalogs that are files, with DuckDB's prefix of their paths."""
_SERVERS = ("postgresql", "postgres")
_FORMS = "duckdb:///lake.db, sqlite:///lake.sqlite or postgresql://user@host:5432/database"


class LakeAddress(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """Where a catalog is. The text of this object has no password."""

    shown: str
    """The URL for messages: the scheme, the host and the path."""
    attached: str
    """The path that DuckDB attaches. It may hold a password."""
    file: str | None = None
    """The absolute path of the catalog if it is a file."""
    secrets: tuple[str, ...] = ()
    """What messages must not show: the password, and others of the URL."""

    def __repr__(self) -> str:
        return f"LakeAddress({self.shown!r})"

    @property
    def extension(self) -> str | None:
        """The extension of DuckDB that reads the catalog; None if DuckDB itself does."""
        if self.file is None:
            return "postgres_scanner"
        return "sqlite_scanner" if self.attached.startswith("sqlite:") else None

    def hide(self, text: str) -> str:
        """Return a message without the secrets, and without the connection that has them."""
        if self.file is None:
            text = text.replace(self.attached, self.shown)
            text = text.replace(self.attached.removeprefix("postgres:"), self.shown)
        return hide_secrets(text, self.secrets)


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
        return _server(ServiceUri.parse(text), key)
    raise JobFileError(f"{key} must be like {_FORMS}")


def _server(uri: ServiceUri, key: str) -> LakeAddress:
    if not uri.is_clear:
        raise JobFileError(
            f"{key}: the host is not one, or has a port that is no number; write {_FORMS}, with a "
            "/, ? or @ of a user or a password as %2F, %3F or %40"
        )
    at = urlsplit(f"//{uri.host}")
    host, port = at.hostname, at.port or 5432
    database = unquote(uri.path.removeprefix("/"))
    if not host or not database:
        raise JobFileError(f"{key} must name a host and a database: postgresql://host/database")
    settings = {"host": host, "port": str(port), "user": uri.user, "password": uri.password}
    settings |= {"dbname": database, **dict(parse_qsl(uri.query))}
    if is_reference(settings["password"]):
        settings["password"] = resolve(settings["password"], key)
    secrets = {*uri.secrets, settings["password"]} - {""}
    shown = f"postgresql://{host}:{port}/{database}"
    connection = f"postgres:{_connection_string(settings)}"
    return LakeAddress(shown, connection, secrets=tuple(sorted(secrets)))


def _connection_string(settings: Mapping[str, str]) -> str:
    """Return the settings as libpq writes them."""
    return " ".join(f"{name}={_quoted(value)}" for name, value in settings.items() if value)


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
