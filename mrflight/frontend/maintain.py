"""``mrflight maintain``: compaction, vacuum and checkpoints of a lakehouse table."""

from __future__ import annotations

import argparse
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

from mrflight import driver
from mrflight.errors import JobFileError, MrflightError
from mrflight.frontend import table_argument
from mrflight.system.command_line import Command
from mrflight.system.early_interrupt import EXIT_INTERRUPTED, unwind_when_interrupted
from mrflight.system.standard_streams import print_answer
from mrflight.units import parse_bytes, parse_seconds

if TYPE_CHECKING:
    from mrflight.sinks.commit.maintenance_report import MaintenanceReport
    from mrflight.sinks.delta.maintenance import MaintenanceOptions


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    table_argument.add_arguments(
        parser, "folder or URL of a Delta table, or with --catalog the name of another one"
    )
    table_argument.add_catalog(parser)
    table_argument.add_data_path(parser)
    parser.add_argument(
        "--target-size",
        default="128 MiB",
        metavar="SIZE",
        help="the largest file that compaction writes; default '128 MiB'",
    )
    parser.add_argument(
        "--retain",
        metavar="TIME",
        help="delete files that were removed longer ago than this, and let older snapshots expire; "
        "by default the retention of the table, which is 7 days if it sets none (5 for Iceberg)",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="allow a --retain shorter than that of the table; readers of older versions then fail",
    )
    parser.add_argument("--no-compact", action="store_true", help="do not compact files")
    parser.add_argument(
        "--no-vacuum", action="store_true", help="do not delete files, nor let snapshots expire"
    )
    parser.add_argument("--no-checkpoint", action="store_true", help="do not write a checkpoint")
    parser.add_argument("--dry-run", action="store_true", help="only print what would be done")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


COMMAND = Command(
    "maintain",
    "compact small files of a table, delete removed ones, write a checkpoint",
    "Maintain a table: compact small files into larger ones, and delete files that its log has "
    "removed some time ago. A Delta table gets a checkpoint of its log. Of Iceberg and DuckLake "
    "tables old snapshots expire.",
    (
        "%(prog)s out/clicks --dry-run",
        '%(prog)s s3://bucket/clicks --target-size "256 MiB" --retain "30 days"',
        "%(prog)s sales.clicks --catalog sqlite:///catalog.db",
        "%(prog)s sales.clicks --catalog ducklake:sqlite:///lake.sqlite",
    ),
    _add_arguments,
)


def run(options: argparse.Namespace) -> int:
    """Maintain the table; the exit codes are those of a job."""
    unwind_when_interrupted()  # the files written so far are removed
    try:
        report = _maintain(options)
    except KeyboardInterrupt:
        sys.stderr.write("mrflight: interrupted\n")
        return EXIT_INTERRUPTED
    except MrflightError as error:
        return driver.report_error(error)
    if options.json:
        import msgspec

        return print_answer(msgspec.json.encode(report).decode())
    return print_answer(report.summary())


def _maintain(options: argparse.Namespace) -> MaintenanceReport:
    from mrflight.sinks.delta.maintenance import maintain

    steps = _maintenance_options(options)
    if options.catalog is not None:
        return _maintain_in_catalog(options, steps)
    table = table_argument.requested_table(options)
    return maintain(table, steps, dry_run=options.dry_run)


def _maintain_in_catalog(
    options: argparse.Namespace, steps: MaintenanceOptions
) -> MaintenanceReport:
    from pathlib import Path

    storage, dry_run = table_argument.requested_storage(options), options.dry_run
    if (url := table_argument.ducklake_url(options.catalog)) is not None:
        from mrflight.sinks.ducklake import maintenance as of_lake

        return of_lake.maintain(options.table, url, storage, steps, dry_run=dry_run)
    from mrflight.sinks.iceberg.maintenance import maintain
    from mrflight.sinks.iceberg.table import named_table

    table = named_table("maintain", options.table, options.catalog, Path.cwd(), storage)
    return maintain(table, steps, dry_run=dry_run)


def _maintenance_options(options: argparse.Namespace) -> MaintenanceOptions:
    """Return the work that the options describe; JobFileError names a wrong option."""
    from mrflight.sinks.delta.maintenance import MaintenanceOptions
    from mrflight.sinks.delta.vacuum import Retention

    try:
        target_bytes = parse_bytes(options.target_size)
    except ValueError as error:
        raise JobFileError(f"--target-size: {error}") from error
    if target_bytes == 0:
        raise JobFileError("--target-size must be more than 0; use --no-compact to keep the files")
    try:
        time = None if options.retain is None else timedelta(seconds=parse_seconds(options.retain))
    except ValueError as error:
        raise JobFileError(f"--retain: {error}") from error
    return MaintenanceOptions(
        target_bytes=None if options.no_compact else target_bytes,
        retention=None if options.no_vacuum else Retention(time, options.force),
        checkpoints=not options.no_checkpoint,
        data_path=table_argument.requested_data_path(options),
    )
