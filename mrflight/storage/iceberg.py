"""Opens the catalogs of Iceberg tables with pyiceberg, and translates its errors into ours.

A catalog is addressed by a URI: ``sqlite:///cat.db`` and ``postgresql://user@host/db`` for SQL
catalogs, ``https://host/...`` for a REST catalog. Its password or token comes from a reference to a
secret, and is in no message.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

import msgspec

from mrflight.config.input_spec import InputSpec
from mrflight.config.output_section import OutputSection
from mrflight.config.secret_reference import check_reference, is_reference, resolve, resolved
from mrflight.config.service_uri import ServiceUri, hide_secrets, shown_uri
from mrflight.errors import (
    CatalogLockedError,
    CommitError,
    JobError,
    JobFileError,
    MrflightError,
)
from mrflight.storage.failures import reason
from mrflight.storage.location import Location, locate
from mrflight.storage.option_names import canonical, scheme_of
from mrflight.storage.sqlite_lock import describe_holder, is_locked
from mrflight.storage.synchronous_commit import check_synchronous_commit

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.catalog.sql import SqlCatalog
    from sqlalchemy.engine import ExceptionContext

DEFAULT_CATALOG = "default"
"""The name under which pyiceberg, too, looks for tables in an SQL catalog if it is told none."""

_SQLITE = "sqlite"
_POSTGRES = ("postgresql", "postgres", "postgresql+psycopg")
_REST = ("http", "https")

_CATALOG_TABLES = 2
"""The tables of an SQL catalog, which pyiceberg makes one after the other."""

_SECRETS = ("password", "token", "credential", "secret")
"""Words in the names of the properties whose values must be references."""

_OF_FILES = {
    "aws_endpoint_url": "s3.endpoint",
    "aws_access_key_id": "s3.access-key-id",
    "aws_secret_access_key": "s3.secret-access-key",
    "aws_session_token": "s3.session-token",
    "aws_region": "s3.region",
    "aws_skip_signature": "s3.anonymous",
    "aws_proxy_url": "s3.proxy-uri",
}
"""pyiceberg's names for options of ``[storage]``."""


class CatalogAddress(msgspec.Struct, frozen=True):
    """What a job says about the catalog of a table, with secrets as references."""

    key: str
    """The section of the job file, for messages."""
    uri: str
    warehouse: str | None
    options: Mapping[str, str]
    base: Path
    """The folder from which relative paths start."""
    storage: Mapping[str, str]

    @classmethod
    def of(
        cls, key: str, spec: OutputSection | InputSpec, base: Path, storage: Mapping[str, str]
    ) -> CatalogAddress:
        """Return the address that a section of a job has; raise JobFileError for a wrong one."""
        if not spec.catalog:
            raise JobFileError(
                f"{key}.catalog is missing, which an Iceberg table needs; write its URI, such as "
                "sqlite:///catalog.db, postgresql://user@host/database or https://host"
            )
        for name, value in spec.catalog_options.items():
            if any(word in name.lower() for word in _SECRETS) and "uri" not in name.lower():
                check_reference(value, f"{key}.catalog_options.{name}")
        if not is_reference(spec.catalog):
            _check_uri(ServiceUri.parse(spec.catalog), f"{key}.catalog")
        return cls(key, spec.catalog, spec.warehouse, spec.catalog_options, base, storage)

    @property
    def shown(self) -> str:
        """The URI for messages: the scheme, the host and the path, or the reference."""
        return shown_uri(self.uri)

    @property
    def is_in_process(self) -> bool:
        """Whether the catalog is a file of this machine, so that no answer can be lost."""
        return self.uri.lower().startswith(f"{_SQLITE}:")

    def open(self) -> Catalog:
        """Open the catalog; an SQL catalog that has no tables yet gets them.

        Raises JobFileError for what is wrong with the address, and CommitError if the catalog does
        not answer.
        """
        import_pyiceberg()
        key = f"{self.key}.catalog"
        uri = resolve(self.uri, key) if is_reference(self.uri) else self.uri
        options = resolved(self.options, f"{self.key}.catalog_options")
        name = options.pop("name", DEFAULT_CATALOG)
        parts = ServiceUri.parse(uri)
        _check_uri(parts, key)
        properties = {**self._of_files(), **options}
        if self.warehouse is not None:
            properties["warehouse"] = self._warehouse(parts.scheme)
        with catalog_errors(f"{key}: the catalog {self.shown} cannot be opened", parts.secrets):
            if parts.scheme in _REST:
                from mrflight.storage.iceberg_rest import RestCatalog

                return RestCatalog(name, uri=uri, **properties)
            address = self._sql_uri(parts, properties)
            catalog = _open_sql(name, address, properties, self.shown)
            if parts.scheme == _SQLITE:
                _name_locks(catalog, address, self.shown)
            return catalog

    def check_exists(self) -> None:
        """Raise JobFileError if the catalog is a file that does not exist; opening creates it."""
        import_pyiceberg()
        if is_reference(self.uri) or not self.is_in_process:
            return
        path = self._sql_uri(ServiceUri.parse(self.uri), {}).removeprefix("sqlite:///")
        path = path.partition("?")[0]
        if not os.path.exists(path):
            raise JobFileError(f"{self.key}.catalog: there is no file {path}")

    def location(self, path: str) -> Location:
        """Return the location of a folder or a file that the table's metadata names."""
        return locate(path, self.base, self.storage)

    def known_location(self, url: str) -> Location | None:
        """Return where a file is that some metadata names; None for an unknown kind of store."""
        try:
            return self.location(url)
        except JobError:
            return None

    def _of_files(self) -> dict[str, str]:
        given = {canonical(name): value for name, value in self.storage.items()}
        named = {_OF_FILES[name]: value for name, value in given.items() if name in _OF_FILES}
        if "s3.endpoint" in named:  # or pyiceberg asks Amazon for the bucket's region
            named.setdefault("s3.region", "us-east-1")
        from mrflight.storage.iceberg_files import OF_FILES

        return {"s3.force-virtual-addressing": "false", **OF_FILES, **resolved(named, "storage")}

    def _warehouse(self, scheme: str) -> str:
        """Return the warehouse as a URL if it is a path. To a REST catalog it may be any name."""
        assert self.warehouse is not None
        if scheme in _REST or len(scheme_of(self.warehouse)) > 1:
            return self.warehouse
        return f"file://{os.path.normpath(self.base / os.path.expanduser(self.warehouse))}"

    def _sql_uri(self, uri: ServiceUri, properties: dict[str, str]) -> str:
        """Return the URI as SQLAlchemy takes it, with the password of the options."""
        query = f"?{uri.query}" if uri.query else ""
        if uri.scheme == _SQLITE:
            path = os.path.normpath(self.base / uri.path.removeprefix("/"))
            if not os.path.isdir(os.path.dirname(path)):
                raise JobFileError(
                    f"{self.key}.catalog: the folder of {path} does not exist; create it"
                )
            return f"sqlite:///{path}{query}"
        check_synchronous_commit(uri.query, f"{self.key}.catalog")
        password = properties.pop("password", None)
        if password is not None and (uri.password or not uri.user):
            raise JobFileError(
                f"{self.key}.catalog must have a user and no password (postgresql://user@host)"
                ", as catalog_options has a password"
            )
        login = [quote(part, safe="") for part in (uri.user, password or uri.password) if part]
        at = f"{':'.join(login)}@" if login else ""
        return f"postgresql+psycopg://{at}{uri.host}{uri.path}{query}"


def import_pyiceberg() -> None:
    """Load pyiceberg; raise JobFileError if it is not installed."""
    try:
        import pyiceberg.catalog
        import pyiceberg.io.pyarrow  # noqa: F401
    except ImportError as error:
        raise JobFileError(
            "Iceberg tables need pyiceberg, which is not installed: pip install 'mrflight[iceberg]'"
        ) from error
    # Columns without bounds are normal: those with NaN have none (see `ParquetEncoder`).
    logging.getLogger("pyiceberg.io.pyarrow").addFilter(_is_of_interest)


def _is_of_interest(record: logging.LogRecord) -> bool:
    return not record.msg.startswith("PyArrow statistics missing")


def parse_table_name(name: str, key: str) -> tuple[str, ...]:
    """Return the namespaces and the name of a table; JobFileError if there is no namespace."""
    parts = tuple(name.split("."))
    if len(parts) < 2 or not all(parts):
        raise JobFileError(
            f"{key}: {name!r} is not the name of an Iceberg table; write namespace.name"
        )
    return parts


@contextmanager
def catalog_errors(what: str, secrets: Iterable[str] = ()) -> Iterator[None]:
    """Raise CommitError, which says ``what``, for any error of pyiceberg and of its libraries.

    ``secrets`` are left out of its text.
    """
    try:
        yield
    except (MrflightError, MemoryError):
        raise
    except Exception as error:
        why = hide_secrets(_first_line(error), secrets)
        raise CommitError(f"{what}: {why}") from error


def is_refusal(error: CommitError) -> bool:
    """Return whether a commit that failed with this error cannot take effect any more.

    An answer of the catalog says so, and an error of a file that is written before the catalog is
    asked. Without an answer of another machine the commit may be on its way.
    """
    from pyiceberg import exceptions

    cause = error.__cause__
    refusals = (
        exceptions.CommitFailedException,
        exceptions.ValidationException,
        exceptions.TableAlreadyExistsError,
        exceptions.NoSuchTableError,
        exceptions.NoSuchNamespaceError,
        exceptions.BadRequestError,
        exceptions.UnauthorizedError,
        exceptions.ForbiddenError,
    )
    if isinstance(cause, refusals):
        return True
    module = type(cause).__module__.partition(".")[0]
    return module not in ("requests", "urllib3", "sqlalchemy", "pyiceberg")


def _first_line(error: Exception) -> str:
    """Return an error's text; the statements and links that SQLAlchemy adds are left out."""
    text = reason(error).partition(" [SQL:")[0].partition(" (Background on this error")[0]
    return text or type(error).__name__


def _check_uri(uri: ServiceUri, key: str) -> None:
    """Raise JobFileError for a URI that no catalog has."""
    if uri.scheme not in (_SQLITE, *_POSTGRES, *_REST):
        raise JobFileError(
            f"{key}: the URI of a catalog begins with sqlite:///, postgresql://, https:// or "
            f"http://, and not with {f'{uri.scheme}://' if uri.scheme else 'a path'}"
        )
    if not uri.is_clear:
        raise JobFileError(
            f"{key}: {uri.shown} has no host that can be told from a user and a password; write a "
            "?, @ or / of these as %3F, %40 or %2F, and a port as a number"
        )
    if uri.scheme in _REST and not urlsplit(f"//{uri.host}").hostname:
        raise JobFileError(f"{key}: {uri.shown} has no host; write https://host/...")
    if uri.scheme in _REST and uri.query:
        raise JobFileError(
            f"{key}: the URI of a REST catalog has nothing behind a ?; write its properties into "
            "catalog_options"
        )


def _open_sql(name: str, uri: str, properties: Mapping[str, str], shown: str) -> SqlCatalog:
    from sqlalchemy.exc import SQLAlchemyError

    from mrflight.storage.iceberg_sql import SqlCatalog

    given = {"pool_pre_ping": "true", **properties, "uri": uri}
    for left in reversed(range(_CATALOG_TABLES + 1)):  # each of which another job may make just now
        try:
            return SqlCatalog(name, **given)
        except SQLAlchemyError as error:
            _raise_if_locked(error, uri, shown)
            if not left:
                raise
    raise AssertionError("the last error was raised")


def _name_locks(catalog: SqlCatalog, uri: str, shown: str) -> None:
    """Let the catalog raise CatalogLockedError if another process keeps its file locked."""
    from sqlalchemy import event

    def tell(context: ExceptionContext) -> None:
        _raise_if_locked(context.sqlalchemy_exception, uri, shown)

    event.listen(catalog.engine, "handle_error", tell)


def _raise_if_locked(error: BaseException | None, uri: str, shown: str) -> None:
    from sqlalchemy import make_url

    if is_locked(getattr(error, "orig", None)):
        holder = describe_holder(make_url(uri).database or "")
        raise CatalogLockedError(f"the catalog {shown} is locked: {holder}") from error
