"""The version of a Delta table that an input reads, and whether it still exists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from mrflight.errors import InputError, JobFileError
from mrflight.sources.found_input import FoundInput
from mrflight.storage import Location
from mrflight.storage.delta import open_table

if TYPE_CHECKING:
    from deltalake import DeltaTable

_ENTRY = re.compile(r"(\d{20})\.(json|checkpoint\..*parquet)")


class VersionRange(msgspec.Struct, frozen=True):
    """The first and the last version that a table's log can restore."""

    first: int
    last: int


def available_versions(names: Iterable[str]) -> VersionRange | None:
    """Return the versions that the files of a log can restore, by their names; None without any.

    If old entries have been cleaned up, the first version is that of a checkpoint.
    """
    entries: set[int] = set()
    checkpoints: set[int] = set()
    for name in names:
        if match := _ENTRY.fullmatch(name):
            (entries if match[2] == "json" else checkpoints).add(int(match[1]))
    if not entries | checkpoints:
        return None
    starts = entries if 0 in entries else checkpoints or entries
    return VersionRange(min(starts), max(entries | checkpoints))


def check_requested_version(found: FoundInput, now: datetime) -> None:
    """Raise JobFileError for an invalid ``version`` or ``timestamp``; ``now`` has a time zone."""
    version, timestamp = found.spec.version, found.spec.timestamp
    if version is None and timestamp is None:
        return
    key = found.key("timestamp" if version is None else "version")
    if found.format != "delta":
        raise JobFileError(f"{key} is only for Delta tables; {found.format} files have no versions")
    if version is not None and timestamp is not None:
        raise JobFileError(f"{key} and timestamp cannot both be set; remove one")
    if version is not None and version < 0:
        raise JobFileError(f"{key} must be 0 or more, not {version}")
    if timestamp is not None and timestamp.tzinfo is None:
        raise JobFileError(
            f"{key}: {timestamp.isoformat()} has no time zone; write {timestamp.isoformat()}Z for "
            "UTC"
        )
    if timestamp is not None and timestamp > now:
        raise JobFileError(
            f"{key}: {_in_utc(timestamp)} is in the future, and the table may have other versions "
            "by then; leave it out to read the newest version"
        )


def open_version(found: FoundInput) -> DeltaTable:
    """Open the table in the version that the input sets, by default the newest one.

    Raises InputError, with the versions in the log, for one that is not there; also raises
    deltalake's errors.
    """
    root, spec = found.root, found.spec
    if spec.version is None and spec.timestamp is None:
        newest: DeltaTable = open_table(root)
        return newest
    available = available_versions(info.base_name for info in root.child("_delta_log").children())
    if available is None:
        raise InputError(f"{found.key('path')}: {root.url} is not a Delta table: its log is empty")
    if spec.timestamp is not None:
        return _open_at(found, available, spec.timestamp)
    if spec.version is not None and not available.first <= spec.version <= available.last:
        raise InputError(
            f"{found.key('version')}: {root.url} has no version {spec.version}; its log has "
            f"versions {available.first} to {available.last}"
        )
    table: DeltaTable = open_table(root, spec.version)
    return table


def _open_at(found: FoundInput, available: VersionRange, timestamp: datetime) -> DeltaTable:
    """Open the version that was the newest at this time.

    deltalake finds it. For a time before the first version it takes the first one.
    """
    root = found.root
    table: DeltaTable = open_table(root)
    table.load_as_version(timestamp)
    committed = _commit_time(root, table.version())
    if committed is not None and committed > timestamp:
        raise InputError(
            f"{found.key('timestamp')}: {_in_utc(timestamp)} is before {_in_utc(committed)}, when "
            f"version {available.first}, the first in the log of {root.url}, was committed"
        )
    return table


def _commit_time(root: Location, version: int) -> datetime | None:
    """Return the in-commit timestamp of a version's entry, or else the file's modification time.

    Returns None if the entry has been removed.
    """
    entry = root.child(f"_delta_log/{version:020}.json")
    info = entry.info()
    if not info.is_file:
        return None
    for line in entry.read_bytes().splitlines():
        milliseconds = json.loads(line).get("commitInfo", {}).get("inCommitTimestamp")
        if milliseconds is not None:
            return datetime.fromtimestamp(milliseconds / 1000, UTC)
    return datetime.fromtimestamp(info.mtime_ns / 1e9, UTC)


def check_not_vacuumed(found: FoundInput, version: int, error: InputError) -> None:
    """Raise InputError if ``error`` is that a file of an older version no longer exists."""
    is_newest = found.spec.version is None and found.spec.timestamp is None
    if is_newest or not isinstance(error.__cause__, FileNotFoundError):
        return
    raise InputError(
        f"version {version} of {found.root.url} cannot be read any more: a vacuum, or a similar "
        f"cleanup, has deleted files that later versions do not need ({error}); read a later "
        "version"
    ) from error


def _in_utc(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
