"""The ``mrflight`` command: ``run``, ``serve metadata|data``, ``status``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from mrflight import driver
from mrflight.errors import MrflightError
from mrflight.quantities import format_bytes


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
        state = "" if server.alive else ", not heard of"
        size = format_bytes(server.stored_bytes)
        lines.append(f"  {server.location}: {server.partitions} partitions, {size}{state}")
    lines.append(f"{len(status.shuffles)} shuffles")
    for shuffle in status.shuffles:
        size = format_bytes(shuffle.size_bytes)
        lines.append(
            f"  {shuffle.id}: {shuffle.partitions} partitions, {shuffle.maps} maps, "
            f"{shuffle.rows:,} rows, {size}"
        )
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
