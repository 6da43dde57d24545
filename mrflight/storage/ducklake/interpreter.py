"""Finds the Python whose DuckDB has the ducklake extension.

The extension of one version of DuckDB cannot be loaded by another, and on PyPI it may be behind
the newest DuckDB. So the extension may be in an environment of its own.
"""

from __future__ import annotations

import os
import sys
from importlib import metadata, util
from pathlib import Path

from mrflight.errors import JobFileError

VARIABLE = "MRFLIGHT_DUCKLAKE_PYTHON"
"""The environment variable that names the Python of another environment."""

PACKAGES = (
    "duckdb==1.5.5 duckdb-extension-ducklake==1.5.5 duckdb-extension-sqlite-scanner==1.5.5 "
    "duckdb-extension-postgres-scanner==1.5.5 duckdb-extension-httpfs==1.5.5"
)


def find_interpreter() -> str:
    """Return the path of a Python that can load the extension.

    That is the one that the environment variable names, or else this one. Raises JobFileError,
    which says how an environment is made, if there is none.
    """
    if named := os.environ.get(VARIABLE):
        if not os.access(named, os.X_OK):
            raise JobFileError(
                f"{VARIABLE} is {named}, which is not a program; make the environment by\n"
                f"{_commands()}"
            )
        return named
    if has_extension():
        return sys.executable
    raise JobFileError(
        "DuckLake needs DuckDB with its ducklake extension, which this environment does not have "
        f"{_found()}; make an environment for it, and name its Python:\n{_commands()}"
    )


def has_extension() -> bool:
    """Return whether the DuckDB of this environment has the extension of its own version."""
    found = util.find_spec("duckdb_extension_ducklake")
    version = _duckdb_version()
    if found is None or found.origin is None or version is None:
        return False
    return any(Path(found.origin).parent.glob(f"extensions/v{version}/*.duckdb_extension"))


def _duckdb_version() -> str | None:
    try:
        return metadata.version("duckdb")
    except metadata.PackageNotFoundError:
        return None


def _found() -> str:
    version = _duckdb_version()
    return "(it has no DuckDB)" if version is None else f"for its DuckDB {version}"


def _commands() -> str:
    return (
        f"  python3 -m venv ~/.mrflight-ducklake && ~/.mrflight-ducklake/bin/pip install {PACKAGES}"
        f"\n  export {VARIABLE}=~/.mrflight-ducklake/bin/python"
    )
