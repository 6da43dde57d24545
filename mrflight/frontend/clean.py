"""``mrflight clean``: the files that killed jobs have left."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mrflight import driver
from mrflight.errors import MrflightError
from mrflight.frontend import table_argument
from mrflight.system.command_line import Command
from mrflight.system.standard_streams import print_answer
from mrflight.units import format_bytes, format_count, parse_seconds

if TYPE_CHECKING:
    from mrflight.sinks.orphan_files import CatalogTable, OrphanFiles
    from mrflight.storage import Location


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    table_argument.add_arguments(
        parser, "folder or URL of a table, or of bad rows, that jobs write to"
    )
    table_argument.add_catalog(parser)
    table_argument.add_data_path(parser)
    parser.add_argument("--remove", action="store_true", help="remove the listed files")
    parser.add_argument(
        "--no-table",
        action="store_true",
        help="with --remove: also remove files of a folder without a table, as a first job leaves "
        "it if it is killed; make sure that no job will commit them and nobody else needs them",
    )
    parser.add_argument(
        "--older-than",
        default="1 day",
        metavar="TIME",
        help="only files older than this, because newer ones may belong to a running job; "
        "default '1 day'",
    )


COMMAND = Command(
    "clean",
    "list or remove files that killed jobs left in the folder of a table, or of bad rows",
    "List the part files of mrflight in the folder of a table that are not in its log, neither as "
    "added nor as removed; in a folder of bad rows, the files of jobs that have not ended. Jobs "
    "that were killed leave such files.",
    (
        "%(prog)s out/clicks",
        '%(prog)s s3://bucket/clicks --remove --older-than "2 days"',
        "%(prog)s bad/visits --remove",
        "%(prog)s sales.clicks --catalog sqlite:///catalog.db",
        "%(prog)s sales.clicks --catalog ducklake:sqlite:///lake.sqlite",
    ),
    _add_arguments,
)


def run(options: argparse.Namespace) -> int:
    """List or remove the files; the exit codes are those of a job."""
    from datetime import UTC, datetime, timedelta

    from mrflight.sinks.orphan_bad_rows import find_orphan_bad_rows
    from mrflight.sinks.orphan_files import find_orphan_files, remove_orphan_files

    try:
        age = timedelta(seconds=parse_seconds(options.older_than))
    except ValueError as error:
        sys.stderr.write(f"mrflight: --older-than: {error}\n")
        return driver.EXIT_WRONG_JOB
    try:
        table, in_catalog = _search(options)
        before = datetime.now(UTC) - age
        orphans = find_orphan_bad_rows(table, before) if in_catalog is None else None
        orphans = orphans or find_orphan_files(table, before, in_catalog)
        lines = [f"{each.path}  {format_bytes(each.size_bytes)}" for each in orphans.files]
        if lines and (code := print_answer("\n".join(lines))):
            return code  # nothing is removed that was not listed
        if options.remove:
            files = None if in_catalog is None else in_catalog.files
            remove_orphan_files(table, orphans, files, no_table=options.no_table)
    except MrflightError as error:
        return driver.report_error(error)
    sys.stderr.write(f"{_summary(orphans, table.url, options.remove)}\n")
    return 0


def _search(options: argparse.Namespace) -> tuple[Location, CatalogTable | None]:
    """Return the folder to search, and the table if a catalog has it."""
    data_path = table_argument.requested_data_path(options)
    if options.catalog is None:
        return table_argument.requested_table(options), None
    storage = table_argument.requested_storage(options)
    if (url := table_argument.ducklake_url(options.catalog)) is not None:
        from mrflight.sinks.ducklake.named_files import LakeFiles

        files = LakeFiles.of(options.table, url, Path.cwd(), storage)
        return files.folder, files
    from mrflight.sinks.iceberg.needed_files import NeededFiles
    from mrflight.sinks.iceberg.table import named_table

    table = named_table("clean", options.table, options.catalog, Path.cwd(), storage)
    needed = NeededFiles(table, data_path)
    return needed.folder, needed


def _summary(orphans: OrphanFiles, url: str, are_removed: bool) -> str:
    """Return the last lines of what is printed."""
    lines = [f"{file.url} stays: {file.why}" for file in orphans.kept]
    if not orphans.is_proven:
        lines.append(
            f"there is no table at {url}: these files may be somebody's copy, and not left over"
        )
    if orphans.newer:
        newer = format_count(orphans.newer, "newer file")
        lines.append(f"{newer} may belong to a running job (see --older-than)")
    if orphans.undecided:
        files = format_count(len(orphans.undecided), "file")
        lines.append(
            f"{files} of bad rows stay, because a job was killed as it committed and may have "
            f"succeeded: {', '.join(orphans.undecided)}"
        )
    count = len(orphans.files)
    summary = f"{format_count(count, 'file')}, {format_bytes(orphans.size_bytes)}, "
    summary += "removed" if are_removed else "left over"
    if orphans.files and not are_removed:
        options = "--remove" if orphans.is_proven else "--remove --no-table"
        summary += f"; {options} removes {'it' if count == 1 else 'them'}"
    return "\n".join([*lines, summary])
