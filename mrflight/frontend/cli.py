"""The ``mrflight`` command: ``run``, ``explain``, ``serve``, ``status``, ``clean`` and others."""

from __future__ import annotations

from mrflight.system.early_interrupt import leave_when_interrupted

if __name__ == "__main__":
    leave_when_interrupted()  # from the first moment on; the imports take a while

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from mrflight import __version__, driver
from mrflight.errors import JobError, MrflightError
from mrflight.frontend import (
    explain as explain_command,
)
from mrflight.frontend import (
    maintain as maintain_command,
)
from mrflight.frontend import (
    table_argument,
)
from mrflight.units import format_bytes, parse_seconds

if TYPE_CHECKING:
    from mrflight.sinks.orphan_files import Leftovers


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; the exit code."""
    driver.open_missing_streams()
    parser = argparse.ArgumentParser(
        prog="mrflight", description="Moves data by key over Arrow Flight, from files to tables."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run a job")
    driver.add_arguments(run)
    run.set_defaults(do=_run)
    explain = commands.add_parser(
        "explain", help="say how a job would be run", description=explain_command.__doc__
    )
    explain_command.add_arguments(explain)
    explain.set_defaults(do=explain_command.run)
    serve = commands.add_parser("serve", help="run a server of a standing cluster", add_help=False)
    serve.add_argument("server", choices=("metadata", "data"))
    serve.set_defaults(do=_serve)
    status = commands.add_parser("status", help="show the servers and shuffles of a cluster")
    status.add_argument("metadata", help="location of the metadata server, grpc+tcp://host:port")
    status.set_defaults(do=_status)
    clean = commands.add_parser(
        "clean",
        help="list, and remove, part files that killed jobs left in a table's folder",
        description="Lists the part files of mrflight's in a table's folder that its log does not "
        "name, neither as added nor as removed: those of jobs that were killed.",
    )
    table_argument.add_arguments(clean, "folder or URL of a table that jobs write")
    clean.add_argument("--remove", action="store_true", help="remove what is listed")
    clean.add_argument(
        "--no-table",
        action="store_true",
        help="also where no table is there, as the first job was killed; no job is to commit the "
        "files any more, and nobody else needs them",
    )
    clean.add_argument(
        "--older-than",
        default="1 day",
        metavar="TIME",
        help="leave alone what may be of a job that runs; default '1 day'",
    )
    clean.set_defaults(do=_clean)
    maintain = commands.add_parser(
        "maintain",
        help="compact a Delta table's small files, delete removed ones, write a checkpoint",
        description=maintain_command.__doc__,
    )
    maintain_command.add_arguments(maintain)
    maintain.set_defaults(do=maintain_command.run)
    options, rest = parser.parse_known_args(arguments)
    if rest and options.command != "serve":
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    options.rest = rest
    code: int = options.do(options)
    return code


def _run(options: argparse.Namespace) -> NoReturn:
    driver.leave(driver.drive(options))


def _serve(options: argparse.Namespace) -> int:
    """Become the server: it has its own options and its own life."""
    module = f"mrflight.servers.{options.server}"
    os.execv(sys.executable, [sys.executable, "-m", module, *options.rest])


def _status(options: argparse.Namespace) -> int:
    from mrflight.shuffle.client.cluster import connect

    try:
        with connect(options.metadata) as cluster:
            status = cluster.status()
    except MrflightError as error:
        sys.stderr.write(f"mrflight: {error}\n")
        return driver.EXIT_WRONG_JOB if isinstance(error, JobError) else driver.EXIT_FAILED
    lines = [f"{len(status.servers)} data servers"]
    for server in status.servers:
        size = format_bytes(server.stored_bytes)
        lines.append(f"  {server.location}: {server.partitions} partitions, {size}")
    lines.append(f"{len(status.shuffles)} shuffles")
    for shuffle in status.shuffles:
        size = format_bytes(shuffle.size_bytes)
        lines.append(
            f"  {shuffle.id}: {shuffle.partitions} partitions, {shuffle.maps} maps, "
            f"{shuffle.rows:,} rows, {size}"
        )
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _clean(options: argparse.Namespace) -> int:
    from datetime import UTC, datetime, timedelta

    from mrflight.sinks.orphan_files import find_leftovers, remove_leftovers

    try:
        age = timedelta(seconds=parse_seconds(options.older_than))
    except ValueError as error:
        sys.stderr.write(f"mrflight: --older-than: {error}\n")
        return driver.EXIT_WRONG_JOB
    try:
        table = table_argument.asked_table(options)
        leftovers = find_leftovers(table, datetime.now(UTC) - age)
        for leftover in leftovers.files:
            sys.stdout.write(f"{leftover.path}  {format_bytes(leftover.size_bytes)}\n")
        if options.remove:
            remove_leftovers(table, leftovers, no_table=options.no_table)
    except MrflightError as error:
        sys.stderr.write(f"mrflight: {error}\n")
        return driver.EXIT_WRONG_JOB
    sys.stderr.write(f"{_told(leftovers, table.url, options.remove)}\n")
    return 0


def _told(leftovers: Leftovers, url: str, are_removed: bool) -> str:
    """The last lines of `clean`."""
    lines = []
    if not leftovers.has_table:
        lines.append(
            f"no table is in {url}: nothing proves that these files are not somebody's copy"
        )
    if leftovers.younger:
        lines.append(f"{leftovers.younger} younger files may be of a job that runs (--older-than)")
    told = f"{len(leftovers.files)} part files, {format_bytes(leftovers.size_bytes)}, "
    told += "removed" if are_removed else "left over"
    if leftovers.files and not are_removed:
        options = "--remove" if leftovers.has_table else "--remove --no-table"
        told += f"; {options} removes them"
    return "\n".join([*lines, told])


if __name__ == "__main__":
    sys.exit(main())
