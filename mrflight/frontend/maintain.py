"""Keeps a Delta table in order.

Small files are written again as larger ones, files that its log has removed a while ago are
deleted, and its log is summed up in a checkpoint.
"""

from __future__ import annotations

import argparse
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

from mrflight import driver
from mrflight.errors import JobError, JobFileError, MrflightError
from mrflight.frontend import table_argument
from mrflight.system.early_interrupt import EXIT_INTERRUPTED, unwind_when_interrupted
from mrflight.units import parse_bytes, parse_seconds

if TYPE_CHECKING:
    from mrflight.sinks.delta.maintenance import MaintenanceReport, Upkeep


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``mrflight maintain``."""
    table_argument.add_arguments(parser, "folder or URL of a Delta table")
    parser.add_argument(
        "--target-size",
        default="128 MiB",
        metavar="SIZE",
        help="neighbouring files become one that is not larger; default '128 MiB'",
    )
    parser.add_argument(
        "--retain",
        metavar="TIME",
        help="how long ago a file was removed that is deleted; by default as long as the table "
        "says, which is 7 days where it says nothing",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="also where --retain is shorter than that: readers of older versions then fail",
    )
    parser.add_argument("--no-compact", action="store_true", help="write no files again")
    parser.add_argument("--no-vacuum", action="store_true", help="delete no files")
    parser.add_argument("--no-checkpoint", action="store_true", help="write no checkpoint")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done")
    parser.add_argument("--json", action="store_true", help="print what was done as JSON")


def run(options: argparse.Namespace) -> int:
    """The exit code, as those of a job."""
    unwind_when_interrupted()  # what was written is removed
    try:
        report = _maintained(options)
    except KeyboardInterrupt:
        sys.stderr.write("mrflight: interrupted\n")
        return EXIT_INTERRUPTED
    except MrflightError as error:
        sys.stderr.write(f"mrflight: {error}\n")
        return driver.EXIT_WRONG_JOB if isinstance(error, JobError) else driver.EXIT_FAILED
    if options.json:
        import msgspec

        sys.stdout.write(f"{msgspec.json.encode(report).decode()}\n")
    else:
        sys.stdout.write(f"{report.summary()}\n")
    return 0


def _maintained(options: argparse.Namespace) -> MaintenanceReport:
    from mrflight.sinks.delta.maintenance import maintain

    upkeep = _upkeep(options)
    table = table_argument.asked_table(options)
    return maintain(table, upkeep, dry_run=options.dry_run)


def _upkeep(options: argparse.Namespace) -> Upkeep:
    """What the options ask for; JobFileError, naming the option, for what is none."""
    from mrflight.sinks.delta.maintenance import Upkeep
    from mrflight.sinks.delta.vacuum import Retention

    try:
        target_bytes = parse_bytes(options.target_size)
    except ValueError as error:
        raise JobFileError(f"--target-size: {error}") from error
    if target_bytes == 0:
        raise JobFileError("--target-size: 0 is no size of a file; --no-compact leaves files alone")
    try:
        time = None if options.retain is None else timedelta(seconds=parse_seconds(options.retain))
    except ValueError as error:
        raise JobFileError(f"--retain: {error}") from error
    return Upkeep(
        target_bytes=None if options.no_compact else target_bytes,
        retention=None if options.no_vacuum else Retention(time, options.force),
        checkpoints=not options.no_checkpoint,
    )
