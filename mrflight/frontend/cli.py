"""The ``mrflight`` command and its subcommands."""

from __future__ import annotations

from mrflight.system.early_interrupt import leave_when_interrupted

if __name__ == "__main__":
    leave_when_interrupted()  # before the other imports, which take a while

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from mrflight import driver
from mrflight.config import server_options
from mrflight.frontend import (
    certificates,
    clean,
    completion,
    explain,
    ingest,
    ingest_verbs,
    maintain,
    page,
    sql,
    status,
)
from mrflight.frontend.doctor import command as doctor
from mrflight.frontend.installation import PrintVersion
from mrflight.frontend.tune import command as tune
from mrflight.system.command_line import Command, CommandParser
from mrflight.system.log_output import hide_messages_of_grpc
from mrflight.system.standard_streams import open_missing_streams


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand and return the exit code."""
    open_missing_streams()
    hide_messages_of_grpc()
    given = ingest_verbs.join_verb(sys.argv[1:] if arguments is None else arguments)
    parser = command_parser()
    if given and given[0].endswith(".toml"):
        parser.error(f"{given[0]!r} is not a command; write mrflight run {given[0]}")
    options = parser.parse_args(given)
    options.given, options.parser = given, parser
    code: int = options.do(options)
    return code


def command_parser() -> CommandParser:
    """Return the parser; ``do`` of what it parses is the function of the subcommand."""
    parser = CommandParser(
        prog="mrflight",
        description="Shuffle data by key over Arrow Flight, from files to tables.",
        epilog="example:\n  mrflight run job.toml\n\n"
        "`mrflight COMMAND --help` describes a command.",
    )
    parser.add_argument("--version", action=PrintVersion)
    commands = parser.add_subparsers(
        dest="command", required=True, title="commands", metavar="COMMAND"
    )
    for command, do in _COMMANDS:
        command.add_to(commands).set_defaults(do=do)
    return parser


def _run(options: argparse.Namespace) -> NoReturn:
    driver.leave(driver.drive(options))


def _add_servers(parser: argparse.ArgumentParser) -> None:
    servers = parser.add_subparsers(
        dest="server", required=True, title="servers", metavar="SERVER", parser_class=CommandParser
    )
    for server in (server_options.METADATA, server_options.DATA):
        server.add_to(servers)


def _serve(options: argparse.Namespace) -> NoReturn:
    """Replace this process by the server, whose arguments are known to be right."""
    module = f"mrflight.servers.{options.server}"
    of_server = options.given[options.given.index(options.server) + 1 :]
    os.execv(sys.executable, [sys.executable, "-m", module, *of_server])


_SERVE = Command(
    "serve",
    "run a server of a standing cluster",
    "Run a server of a standing cluster, which several jobs and clients share. A job without "
    "cluster.metadata needs none: it starts servers of its own.",
    (
        "%(prog)s metadata --port 5005",
        "%(prog)s data --metadata grpc+tcp://127.0.0.1:5005",
        "%(prog)s data --help",
    ),
    _add_servers,
)

_COMMANDS: tuple[tuple[Command, Callable[[argparse.Namespace], int]], ...] = (
    (driver.COMMAND, _run),
    (sql.COMMAND, sql.run),
    (ingest.COMMAND, ingest.run),
    *ingest_verbs.COMMANDS,
    (explain.COMMAND, explain.run),
    (tune.COMMAND, tune.run),
    (_SERVE, _serve),
    (status.COMMAND, status.run),
    (page.COMMAND, page.run),
    (clean.COMMAND, clean.run),
    (maintain.COMMAND, maintain.run),
    (certificates.COMMAND, certificates.run),
    (doctor.COMMAND, doctor.run),
    (completion.COMMAND, completion.run),
)


if __name__ == "__main__":
    sys.exit(main())
