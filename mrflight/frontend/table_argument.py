"""The table that a command is about: where it is, and how its store is reached."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from mrflight.config.secret_options import holds_secret
from mrflight.errors import JobFileError

if TYPE_CHECKING:
    from mrflight.storage import Location


def add_arguments(parser: argparse.ArgumentParser, what: str) -> None:
    """The table, which is ``what``, and the options of its store."""
    parser.add_argument("table", help=what)
    parser.add_argument(
        "--storage",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option of its store, as in [storage] of a job file; no secrets, which are taken "
        "from the environment",
    )


def asked_table(options: argparse.Namespace) -> Location:
    """The table, whose store can be asked from here on; JobError for what is none, or cannot be.

    With what the environment says of its store: see `with_environment`. Relative paths are from
    the current folder.
    """
    from mrflight.storage import hopsfs, locate
    from mrflight.storage.bucket_options import check_commits, check_endpoint
    from mrflight.storage.environment import with_environment
    from mrflight.storage.known_options import check_options

    given = dict(_option(text) for text in options.storage)
    check_options(given, [options.table], "--storage ")
    storage = with_environment(given, [options.table], os.environ)
    check_endpoint(storage, [options.table], os.environ, "--storage ")
    check_commits(storage, options.table, os.environ, "--storage ")
    hopsfs.prepare(storage, [options.table], Path.cwd())
    return locate(options.table, Path.cwd(), storage)


def _option(text: str) -> tuple[str, str]:
    """JobFileError, which does not show the value, for a secret or what is no option."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise JobFileError("--storage: write KEY=VALUE")
    if holds_secret(key, value):
        raise JobFileError(
            f"--storage {key}: whoever lists this machine's processes would see it; leave it to "
            "the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN"
        )
    return key, value
