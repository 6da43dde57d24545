"""The ``mrflight`` command and its subcommands."""

from __future__ import annotations

from mrflight.system.early_interrupt import leave_when_interrupted

if __name__ == "__main__":
    leave_when_interrupted()  # before the other imports, which take a while

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from mrflight import __version__, driver
from mrflight.errors import MrflightError
from mrflight.frontend import maintain, table_argument
from mrflight.units import format_bytes, format_count, parse_seconds

if TYPE_CHECKING:
    from mrflight.sinks.orphan_files import OrphanFiles


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand and return the exit code."""
    driver.open_missing_streams()
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    if rest and options.command != "serve":
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    options.rest = rest
    code: int = options.do(options)
    return code


def _parser() -> argparse.ArgumentParser:
    """Return the parser; ``do`` of what it parses is the function of the subcommand."""
    parser = argparse.ArgumentParser(
        prog="mrflight", description="Shuffles data by key over Arrow Flight, from files to tables."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run a job")
    driver.add_arguments(run)
    run.set_defaults(do=_run)
    explain = commands.add_parser(
        "explain",
        help="print how a job would run",
        description="Print how a job would run: what it reads, shuffles and writes, in how many "
        "tasks and partitions, and why. Nothing is started or written. Mistakes in the job are "
        "reported as by running it, with exit code 2.",
    )
    driver.add_job_arguments(explain)
    explain.set_defaults(do=_explain)
    serve = commands.add_parser("serve", help="run a server of a standing cluster", add_help=False)
    serve.add_argument("server", choices=("metadata", "data"))
    serve.set_defaults(do=_serve)
    status = commands.add_parser("status", help="show the servers and shuffles of a cluster")
    status.add_argument("metadata", help="location of the metadata server, grpc+tcp://host:port")
    status.set_defaults(do=_status)
    clean = commands.add_parser(
        "clean",
        help="list or remove part files that killed jobs left in the folder of a table",
        description="List the part files of mrflight in the folder of a table that are not in its "
        "log, neither as added nor as removed. Jobs that were killed leave such files.",
    )
    _add_clean_arguments(clean)
    maintenance = commands.add_parser(
        "maintain",
        help="compact small files of a Delta table, delete removed ones, write a checkpoint",
        description=maintain.DESCRIPTION,
    )
    maintain.add_arguments(maintenance)
    maintenance.set_defaults(do=maintain.run)
    return parser


def _add_clean_arguments(clean: argparse.ArgumentParser) -> None:
    table_argument.add_arguments(clean, "folder or URL of a table that jobs write to")
    clean.add_argument("--remove", action="store_true", help="remove the listed files")
    clean.add_argument(
        "--no-table",
        action="store_true",
        help="with --remove: also remove files of a folder without a table, as a first job leaves "
        "it if it is killed; make sure that no job will commit them and nobody else needs them",
    )
    clean.add_argument(
        "--older-than",
        default="1 day",
        metavar="TIME",
        help="only files older than this, because newer ones may belong to a running job; "
        "default '1 day'",
    )
    clean.set_defaults(do=_clean)


def _run(options: argparse.Namespace) -> NoReturn:
    driver.leave(driver.drive(options))


def _explain(options: argparse.Namespace) -> int:
    from mrflight.planner.explain import explain  # loads Arrow, which most commands do not need

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        lines = explain(*driver.requested_job(options))
    except MrflightError as error:
        return driver.report_error(error)
    return driver.print_answer("\n".join(lines))


def _serve(options: argparse.Namespace) -> int:
    """Replace this process by the server, which has options of its own."""
    module = f"mrflight.servers.{options.server}"
    os.execv(sys.executable, [sys.executable, "-m", module, *options.rest])


def _status(options: argparse.Namespace) -> int:
    from mrflight.shuffle.client.cluster import connect

    try:
        with connect(options.metadata) as cluster:
            status = cluster.status()
    except MrflightError as error:
        return driver.report_error(error)
    lines = [format_count(len(status.servers), "data server")]
    for server in status.servers:
        size = format_bytes(server.stored_bytes)
        partitions = format_count(server.partitions, "partition")
        lines.append(f"  {server.location}: {partitions}, {size}")
    lines.append(format_count(len(status.shuffles), "shuffle"))
    for shuffle in status.shuffles:
        size = format_bytes(shuffle.size_bytes)
        lines.append(
            f"  {shuffle.id}: {format_count(shuffle.partitions, 'partition')}, "
            f"{format_count(shuffle.maps, 'map')}, {format_count(shuffle.rows, 'row')}, {size}"
        )
    return driver.print_answer("\n".join(lines))


def _clean(options: argparse.Namespace) -> int:
    from datetime import UTC, datetime, timedelta

    from mrflight.sinks.orphan_files import find_orphan_files, remove_orphan_files

    try:
        age = timedelta(seconds=parse_seconds(options.older_than))
    except ValueError as error:
        sys.stderr.write(f"mrflight: --older-than: {error}\n")
        return driver.EXIT_WRONG_JOB
    try:
        table = table_argument.requested_table(options)
        orphans = find_orphan_files(table, datetime.now(UTC) - age)
        lines = [f"{each.path}  {format_bytes(each.size_bytes)}" for each in orphans.files]
        if lines and (code := driver.print_answer("\n".join(lines))):
            return code  # nothing is removed that was not listed
        if options.remove:
            remove_orphan_files(table, orphans, no_table=options.no_table)
    except MrflightError as error:
        return driver.report_error(error)
    sys.stderr.write(f"{_clean_summary(orphans, table.url, options.remove)}\n")
    return 0


def _clean_summary(orphans: OrphanFiles, url: str, are_removed: bool) -> str:
    """Return the last lines that `clean` prints."""
    lines = []
    if not orphans.has_table:
        lines.append(
            f"there is no table at {url}: these files may be somebody's copy, and not left over"
        )
    if orphans.newer:
        newer = format_count(orphans.newer, "newer file")
        lines.append(f"{newer} may belong to a running job (see --older-than)")
    count = len(orphans.files)
    summary = f"{format_count(count, 'part file')}, {format_bytes(orphans.size_bytes)}, "
    summary += "removed" if are_removed else "left over"
    if orphans.files and not are_removed:
        options = "--remove" if orphans.has_table else "--remove --no-table"
        summary += f"; {options} removes {'it' if count == 1 else 'them'}"
    return "\n".join([*lines, summary])


if __name__ == "__main__":
    sys.exit(main())
