"""The one place where deltalake is imported, and where what it raises becomes ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from urllib.parse import quote

from mrflight.errors import CommitError, MrflightError, OutputError
from mrflight.storage.location import Location


def import_deltalake() -> ModuleType:
    """The deltalake module; OutputError where it is not installed."""
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
    scheme, _, rest = location.url.partition("://")
    return f"{scheme}://{quote(rest)}"  # it decodes what it gets


def is_table(location: Location) -> bool:
    """Whether there is a table; raises what deltalake does."""
    found: bool = import_deltalake().DeltaTable.is_deltatable(
        table_uri(location), storage_options(location)
    )
    return found


def open_table(location: Location) -> Any:
    """Its newest version, a `deltalake.DeltaTable`; raises what that does."""
    return import_deltalake().DeltaTable(
        table_uri(location), storage_options=storage_options(location)
    )


def storage_options(location: Location) -> dict[str, str] | None:
    """What deltalake is given to reach the store."""
    return dict(location.options) or None


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
        reason = " ".join(str(error).split())
        raise CommitError(f"{what}: {reason}") from error
