"""Which version of a Delta table an input reads, and whether it is still there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from mrflight.errors import InputError, JobFileError
from mrflight.sources.discovery import FoundInput
from mrflight.storage import Location
from mrflight.storage.delta import open_table

if TYPE_CHECKING:
    from deltalake import DeltaTable

_ENTRY = re.compile(r"(\d{20})\.(json|checkpoint\..*parquet)")


class Versions(msgspec.Struct, frozen=True):
    """The first and the last that a table's log has."""

    first: int
    last: int


def versions_of(names: Iterable[str]) -> Versions | None:
    """What the files of a log, by their names, can bring back; None for an empty one.

    Of a log that was cleaned up that begins with a checkpoint.
    """
    entries: set[int] = set()
    checkpoints: set[int] = set()
    for name in names:
        if match := _ENTRY.fullmatch(name):
            (entries if match[2] == "json" else checkpoints).add(int(match[1]))
    if not entries | checkpoints:
        return None
    begins = entries if 0 in entries else checkpoints or entries
    return Versions(min(begins), max(entries | checkpoints))


def check_asked(found: FoundInput, now: datetime) -> None:
    """JobFileError for a version that cannot be meant. ``now`` has a zone."""
    version, timestamp = found.spec.version, found.spec.timestamp
    if version is None and timestamp is None:
        return
    key = found.key("timestamp" if version is None else "version")
    if found.format != "delta":
        raise JobFileError(f"{key} is for Delta tables; {found.format} files have no versions")
    if version is not None and timestamp is not None:
        raise JobFileError(f"{key} and timestamp name two versions; take one out")
    if version is not None and version < 0:
        raise JobFileError(f"{key}: {version}; versions count from 0")
    if timestamp is not None and timestamp.tzinfo is None:
        raise JobFileError(
            f"{key}: {timestamp.isoformat()} has no zone; write {timestamp.isoformat()}Z for UTC"
        )
    if timestamp is not None and timestamp > now:
        raise JobFileError(
            f"{key}: {_shown(timestamp)} lies ahead, when the table may have other versions; leave "
            "it out to read the newest"
        )


def open_version(found: FoundInput) -> DeltaTable:
    """The table as the input wants it, by default its newest version.

    InputError, with what there is, for one that the log does not have; raises what deltalake does.
    """
    root, spec = found.root, found.spec
    if spec.version is None and spec.timestamp is None:
        newest: DeltaTable = open_table(root)
        return newest
    there = versions_of(info.base_name for info in root.child("_delta_log").children())
    if there is None:
        raise InputError(f"{found.key('path')}: {root.url} is no Delta table; its log is empty")
    if spec.timestamp is not None:
        return _open_at(found, there, spec.timestamp)
    if spec.version is not None and not there.first <= spec.version <= there.last:
        raise InputError(
            f"{found.key('version')}: {root.url} has no version {spec.version}; its log has "
            f"{there.first} to {there.last}"
        )
    table: DeltaTable = open_table(root, spec.version)
    return table


def _open_at(found: FoundInput, there: Versions, timestamp: datetime) -> DeltaTable:
    """The version that was the newest then, by deltalake, which takes the first for any before."""
    root = found.root
    table: DeltaTable = open_table(root)
    table.load_as_version(timestamp)
    began = _committed_at(root, table.version())
    if began is not None and began > timestamp:
        raise InputError(
            f"{found.key('timestamp')}: {_shown(timestamp)} is before {_shown(began)}, when the "
            f"first version that the log of {root.url} has was committed, {there.first}"
        )
    return table


def _committed_at(root: Location, version: int) -> datetime | None:
    """The time in a version's entry, where the table has such times, or that of the file.

    None where the entry is gone.
    """
    entry = root.child(f"_delta_log/{version:020}.json")
    info = entry.info()
    if not info.is_file:
        return None
    for line in entry.read_bytes().splitlines():
        said = json.loads(line).get("commitInfo", {}).get("inCommitTimestamp")
        if said is not None:
            return datetime.fromtimestamp(said / 1000, UTC)
    return datetime.fromtimestamp(info.mtime_ns / 1e9, UTC)


def check_gone(found: FoundInput, version: int, error: InputError) -> None:
    """InputError where a file of an older version could not be opened as it is gone."""
    is_newest = found.spec.version is None and found.spec.timestamp is None
    if is_newest or not isinstance(error.__cause__, FileNotFoundError):
        return
    raise InputError(
        f"version {version} of {found.root.url} cannot be read any more: a vacuum, or something "
        f"like it, has deleted files that later versions do not need ({error}); take a later one"
    ) from error


def _shown(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
