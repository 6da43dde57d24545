"""Context managers around reads of an input's file: translate errors, and detect a changed file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from mrflight.errors import InputError, MrflightError
from mrflight.storage import Location
from mrflight.storage.failures import has_failed, is_store_failure, read_failure
from mrflight.storage.store import FileVersion


@contextmanager
def translate_read_errors(format: str, location: Location) -> Iterator[None]:
    """Raise InputError, with the file's URL, for an error of pyarrow or of a store.

    Raises StoreError if the file may be intact: its store failed, and may work again later.
    """
    try:
        yield
    except (MrflightError, MemoryError):
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and is_store_failure(error):
            raise read_failure(f"{location.url} cannot be read", error, location.store) from error
        reason = str(error).strip().partition("\n")[0].partition(". ")[0].rstrip(".")
        raise InputError(
            f"{location.url} cannot be read as {format}: {reason}; the file is truncated, damaged "
            "or in another format"
        ) from error


@contextmanager
def verify_unchanged(location: Location, version: FileVersion | None) -> Iterator[Location]:
    """Yield the location to read; raise InputError if the file does not have this version.

    The file is checked before and after the reads. A check at the start alone would miss a file
    that is truncated while it is read. If a read fails and the file has changed, the change is
    reported and not the failure. On a local disk the two checks take 3 us each. In a store where
    a check is a request, the answer to every read has the version, so nothing else is asked.
    """
    if version is None:
        yield location
        return
    location = location.of(version)
    if not location.checks_version:
        _check_version(location, version)
    try:
        yield location
    except Exception as error:
        if not (location.checks_version and has_failed(error)):  # the store would fail again
            _check_version(location, version)
        raise
    if not location.checks_version:
        _check_version(location, version)


def check_unchanged(location: Location) -> None:
    """Raise InputError if the file no longer has the version that the location names."""
    if location.version is not None:
        _check_version(location, location.version)


def _check_version(location: Location, version: FileVersion) -> None:
    info = location.info()
    if info.size != version.size_bytes:
        now = "is gone" if info.size is None else f"has {info.size:,}"
        change = f"it had {version.size_bytes:,} bytes when the job began, and {now} now"
    elif version.mtime_ns is not None and info.mtime_ns != version.mtime_ns:
        change = f"its {version.size_bytes:,} bytes were rewritten after the job began"
    else:
        return
    raise InputError(f"{location.url} changed while the job ran: {change}; run the job again")
