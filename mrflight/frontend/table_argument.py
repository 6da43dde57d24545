"""The arguments of commands that work on a table: its location, and the options of its store."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from mrflight.config.secret_options import holds_secret
from mrflight.config.service_uri import check_argument
from mrflight.errors import InputError, JobFileError

if TYPE_CHECKING:
    from mrflight.storage import Location

_DUCKLAKE = "ducklake:"
"""What a URI of ``--catalog`` begins with that is the catalog of a DuckLake."""


def add_arguments(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the table, described by ``what``, and the options of its store."""
    parser.add_argument("table", metavar="TABLE", help=what)
    parser.add_argument(
        "--storage",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option of its store, as in [storage] of a job file; may be repeated; secrets are "
        "taken from the environment only",
    )


def add_catalog(parser: argparse.ArgumentParser) -> None:
    """Add the catalog that a table is in, whose name TABLE then is."""
    parser.add_argument(
        "--catalog",
        metavar="URI",
        help="the catalog of an Iceberg table, or ducklake: and that of a DuckLake table, which "
        "TABLE then is the name of: namespace.name; env:NAME takes the URI from the environment, "
        "for one with a password",
    )


def add_data_path(parser: argparse.ArgumentParser) -> None:
    """Add the folder of an Iceberg table's data files if it is not below the table's location."""
    parser.add_argument(
        "--data-path",
        metavar="URL",
        help="the folder of an Iceberg table's data files (write.data.path) if it lies outside of "
        "the table's location, to delete files there as well; no other table may be there",
    )


def requested_data_path(options: argparse.Namespace) -> Location | None:
    """Return the folder that ``--data-path`` names; raises JobError."""
    if options.data_path is None:
        return None
    if options.catalog is None or ducklake_url(options.catalog) is not None:
        raise JobFileError("--data-path: only an Iceberg table has such a folder; leave it out")
    from mrflight.storage import locate

    return locate(options.data_path, Path.cwd(), requested_storage(options))


def ducklake_url(catalog: str) -> str | None:
    """Return the URL of the catalog of a DuckLake; None for the catalog of Iceberg tables.

    Raises JobFileError for one with a password.
    """
    check_argument(catalog.removeprefix(_DUCKLAKE), "--catalog")
    return catalog.removeprefix(_DUCKLAKE) if catalog.startswith(_DUCKLAKE) else None


def requested_table(options: argparse.Namespace) -> Location:
    """Return the table, whose store is ready to be used; raises JobError.

    Options of the store from the environment are included: see `with_environment`. A relative path
    is below the current folder.
    """
    if os.path.isfile(options.table):
        raise InputError(f"{options.table} is a file; name the folder of the table that it is in")
    from mrflight.storage import hopsfs, locate
    from mrflight.storage.environment import with_environment
    from mrflight.storage.option_checks import check_commits, check_endpoint, check_options

    given = dict(_option(text) for text in options.storage)
    check_options(given, [options.table], "--storage ")
    storage = with_environment(given, [options.table], os.environ)
    check_endpoint(storage, [options.table], os.environ, "--storage ")
    check_commits(storage, options.table, os.environ, "--storage ")
    hopsfs.prepare(storage, [options.table], Path.cwd())
    return locate(options.table, Path.cwd(), storage)


def requested_storage(options: argparse.Namespace) -> dict[str, str]:
    """Return the options of the store of a table whose catalog knows where it is.

    Those of buckets are taken from the environment as well. Raises JobFileError.
    """
    from mrflight.storage.environment import with_environment

    given = dict(_option(text) for text in options.storage)
    return with_environment(given, ["s3://"], os.environ)


def _option(text: str) -> tuple[str, str]:
    """Parse KEY=VALUE; JobFileError, which does not show the value, for secrets and other texts."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise JobFileError("--storage: write KEY=VALUE")
    if holds_secret(key, value):
        raise JobFileError(
            f"--storage {key}: a secret must not be an argument, because every user of this "
            "machine can read it; put it into the environment: AWS_ACCESS_KEY_ID, "
            "AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN"
        )
    return key, value
