"""Whether an input's file is still the one that the job was planned for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mrflight.errors import InputError
from mrflight.storage import Location
from mrflight.storage.failures import has_failed
from mrflight.storage.store import FileVersion

__all__ = ["FileVersion", "unchanged"]


@contextmanager
def unchanged(location: Location, version: FileVersion | None) -> Iterator[Location]:
    """What to read; InputError where that is not of ``version``, before it is read or after that.

    Looking only when it is opened would miss one that is cut as it is read. Where reading fails,
    a change is told in the place of what was wrong with the rows. Costs two looks of 3 us on a
    local disk. Where a look is a request, the answers to the reads tell the same, each of them.
    """
    if version is None:
        yield location
        return
    location = location.of(version)
    if not location.checks_version:
        _check(location, version)
    try:
        yield location
    except Exception as error:
        if not (location.checks_version and has_failed(error)):  # it would be asked in vain again
            _check(location, version)
        raise
    if not location.checks_version:
        _check(location, version)


def _check(location: Location, version: FileVersion) -> None:
    info = location.info()
    if info.size != version.size_bytes:
        now = "is gone" if info.size is None else f"has {info.size:,}"
        change = f"it had {version.size_bytes:,} bytes when the job began, and {now} now"
    elif version.mtime_ns is not None and info.mtime_ns != version.mtime_ns:
        change = f"its {version.size_bytes:,} bytes were written again after the job began"
    else:
        return
    raise InputError(f"{location.url} changed while the job ran: {change}; run the job again")
