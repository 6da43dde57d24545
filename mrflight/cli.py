"""The ``mrflight`` command: ``run``, ``serve metadata|data``, ``status``, ``clean``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from mrflight import driver
from mrflight.errors import MrflightError
from mrflight.quantities import format_bytes, parse_seconds


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; the exit code."""
    driver.open_missing_streams()
    parser = argparse.ArgumentParser(
        prog="mrflight", description="Moves data by key over Arrow Flight, from files to tables."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run a job", description=driver.__doc__)
    driver.add_arguments(run)
    run.set_defaults(do=_run)
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
    clean.add_argument("table", help="folder or URL of a table that jobs write")
    clean.add_argument("--remove", action="store_true", help="remove what is listed")
    clean.add_argument(
        "--older-than",
        default="1 day",
        metavar="TIME",
        help="leave alone what may be of a job that runs; default '1 day'",
    )
    clean.set_defaults(do=_clean)
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
    from mrflight.client import connect

    try:
        with connect(options.metadata) as cluster:
            status = cluster.status()
    except MrflightError as error:
        sys.stderr.write(f"mrflight: {error}\n")
        return driver.EXIT_FAILED
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

    from mrflight.sinks.leftovers import find_leftovers, remove_leftovers
    from mrflight.storage import locate

    try:
        age = timedelta(seconds=parse_seconds(options.older_than))
    except ValueError as error:
        sys.stderr.write(f"mrflight: --older-than: {error}\n")
        return driver.EXIT_WRONG_JOB
    try:
        table = locate(options.table, Path.cwd())
        leftovers = find_leftovers(table, datetime.now(UTC) - age)
        for leftover in leftovers:
            sys.stdout.write(f"{leftover.path}  {format_bytes(leftover.size_bytes)}\n")
        if options.remove:
            remove_leftovers(table, leftovers)
    except MrflightError as error:
        sys.stderr.write(f"mrflight: {error}\n")
        return driver.EXIT_WRONG_JOB
    size = format_bytes(sum(leftover.size_bytes for leftover in leftovers))
    done = "removed" if options.remove else "left over; --remove removes them"
    sys.stderr.write(f"{len(leftovers)} part files, {size}, {done}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
