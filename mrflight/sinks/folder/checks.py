"""Checks before a job writes to a folder of plain files, by what the folder holds already."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mrflight.config.output_section import OutputSection
from mrflight.errors import OutputError
from mrflight.sinks.commit.job_files import (
    check_is_folder,
    is_in_partition,
    is_unfinished_manifest,
    relative_path,
)
from mrflight.sinks.folder.tombstones import check_deletable
from mrflight.storage import Location
from mrflight.storage.delta import LOG
from mrflight.storage.manifest import Manifest
from mrflight.storage.manifest_log import MANIFESTS
from mrflight.storage.part_name import is_part, is_part_of_run

if TYPE_CHECKING:
    from pyarrow import fs


def check_store(location: Location, spec: OutputSection) -> None:
    """Raise OutputError for a store in which a folder cannot be committed."""
    if (why := location.why_no_put_if_absent()) is not None:
        raise OutputError(
            f"output.format: to commit a folder of {spec.format} files, a file must be created "
            f"only if it does not exist, and at {location.url} {why}; or set output.format to "
            '"delta"'
        )


def check_folder(location: Location) -> None:
    """Raise OutputError if something other than a folder of plain files has its path."""
    check_is_folder(location)
    if location.child(LOG).is_folder():
        raise OutputError(
            f"output.table: {location.url} is a Delta table; set output.format to delta, or choose "
            "another folder"
        )


def check_mode(
    location: Location, spec: OutputSection, manifest: Manifest | None, run_hash: str
) -> None:
    """Raise OutputError if ``spec.mode`` does not fit what the folder holds.

    ``run_hash`` is that of the job: see `part_name.hash_run_id`.
    """
    ours = manifest.files | set(manifest.tombstones) if manifest else set()
    if manifest is None or spec.mode != "append":
        below = location.walk()
        if spec.mode == "error":
            _check_empty(location, below, run_hash)
        _check_no_others(location, below, spec, ours, run_hash)
    if manifest is not None and spec.mode == "append":
        check_append(location, spec, manifest)
    if manifest is not None and spec.mode == "overwrite":
        check_deletable(location, ours)


def _check_empty(location: Location, below: list[fs.FileInfo], run_hash: str) -> None:
    """Raise OutputError if the folder holds more than the files of a killed job of this run."""
    found = sorted(
        relative_path(location, info.path)
        for info in below
        if not is_part_of_run(location.store.final_name(info.base_name), run_hash)
        and not is_unfinished_manifest(location, info)
        and (info.is_file or ("=" not in info.base_name and info.base_name != MANIFESTS))
    )
    if found:
        raise OutputError(
            f"output.table: the folder {location.url} is not empty (it holds {found[0]}); choose "
            "another, or set output.mode to append or overwrite"
        )


def _check_no_others(
    location: Location,
    below: list[fs.FileInfo],
    spec: OutputSection,
    ours: set[str],
    run_hash: str,
) -> None:
    """Raise OutputError for data that no manifest lists, because mrflight may not own it.

    The files of a killed job of the same run are no such data: this job's commit removes them.
    """
    left = []
    for path, name in _visible_files(location, below):
        if path in ours or is_part_of_run(name, run_hash):
            continue
        if not is_part(name) or not is_in_partition(path):
            reason = "is in no partition of it" if is_part(name) else "mrflight did not write"
            raise OutputError(
                f"output.table: mode {spec.mode}: the folder {location.url} holds {path}, which "
                f"{reason}; choose another folder"
            )
        left.append(path)
    if left:
        files = "file" if len(left) == 1 else "files"
        remove = "--remove" if ours else "--remove --no-table"
        raise OutputError(
            f"output.table: mode {spec.mode}: the folder {location.url} holds {len(left)} part "
            f"{files} ({min(left)}) of another job of mrflight, which runs or was killed; wait "
            "until it ends, or, if it does not run, remove its files: mrflight clean "
            f"{shlex.quote(location.url)} {remove}, with --older-than '0 s' if it began today"
        )


def _visible_files(location: Location, below: list[fs.FileInfo]) -> Iterator[tuple[str, str]]:
    """Yield the relative path and the final name of each file that readers do not skip."""
    for info in below:
        path = relative_path(location, info.path)
        name = location.store.final_name(info.base_name)
        if info.is_file and not any(n[0] in "_." for n in (*path.split("/")[:-1], name)):
            yield path, name


def check_append(location: Location, spec: OutputSection, manifest: Manifest) -> None:
    """Raise OutputError if an append would mix formats or partitionings in the folder."""
    if manifest.format != spec.format:
        raise OutputError(
            f"{location.url} cannot be appended to: it holds {manifest.format} files, not "
            f"{spec.format}; set output.format to that"
        )
    if manifest.partition_by != spec.partition_by:
        raise OutputError(
            f"{location.url} cannot be appended to: it is partitioned by {manifest.partition_by}, "
            f"not {spec.partition_by}; set output.partition_by to that"
        )
