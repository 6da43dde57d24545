"""``mrflight status``: the servers and shuffles of a cluster."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from mrflight import driver
from mrflight.config.identity_options import add_identity_arguments, identity_of
from mrflight.errors import MrflightError
from mrflight.ids import shown_job_name
from mrflight.system.command_line import Command, quantity
from mrflight.system.standard_streams import print_answer
from mrflight.units import format_bytes, format_count, parse_seconds

if TYPE_CHECKING:
    from mrflight.shuffle.wire.cluster_status import StatusResponse

_CLEAR_SCREEN = "\x1b[H\x1b[2J"


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "metadata",
        metavar="LOCATION",
        help="location of the metadata server, which it prints when it is ready",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, in one line")
    parser.add_argument(
        "--watch", action="store_true", help="print the status again and again, until Ctrl-C"
    )
    parser.add_argument(
        "--interval",
        type=quantity(parse_seconds),
        default="2 s",
        metavar="TIME",
        help="with --watch: how long to wait in between; default 2 s",
    )
    add_identity_arguments(parser)


COMMAND = Command(
    "status",
    "show the servers and shuffles of a cluster",
    "Show the data servers of a standing cluster and the shuffles that they hold, with the names "
    "of their jobs, as its metadata server sees them.",
    (
        "%(prog)s grpc+tcp://127.0.0.1:5005",
        "%(prog)s grpc+tcp://127.0.0.1:5005 --watch",
        "%(prog)s grpc+tcp://127.0.0.1:5005 --json | jq .shuffles[].job",
    ),
    _add_arguments,
)


def run(options: argparse.Namespace) -> int:
    """Print the status, once or until the answer cannot be written; return the exit code."""
    from mrflight.shuffle.client.cluster import connect

    try:
        with connect(options.metadata, identity=identity_of(options)) as cluster:
            while True:
                code = print_answer(_text(cluster.status(), options))
                if code or not options.watch:
                    return code
                time.sleep(options.interval)
    except MrflightError as error:
        return driver.report_error(error)


def _text(status: StatusResponse, options: argparse.Namespace) -> str:
    if options.json:
        return msgspec.json.encode(status).decode()
    text = "\n".join(_lines(status))
    if options.watch and sys.stdout.isatty():
        return f"{_CLEAR_SCREEN}{text}"
    return f"{text}\n" if options.watch else text


def _lines(status: StatusResponse) -> Iterator[str]:
    yield format_count(len(status.servers), "data server")
    yield from _table(
        ("location", "partitions", "stored", "in memory", "of", "on disk"),
        [
            (
                server.location,
                f"{server.partitions:,}",
                format_bytes(server.stored_bytes),
                format_bytes(server.use.held_bytes),
                format_bytes(server.use.budget_bytes) if server.use.budget_bytes else "-",
                format_bytes(server.use.spilled_bytes),
            )
            for server in status.servers
        ],
        left=1,
    )
    yield format_count(len(status.shuffles), "shuffle")
    yield from _table(
        ("shuffle", "job", "partitions", "maps", "rows", "size"),
        [
            (
                shuffle.id,
                shown_job_name(shuffle.job) or "-",
                f"{shuffle.partitions:,}",
                f"{shuffle.maps:,}",
                f"{shuffle.rows:,}",
                format_bytes(shuffle.size_bytes),
            )
            for shuffle in status.shuffles
        ],
        left=2,
    )


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> Iterator[str]:
    """Yield the lines of a table; its first ``left`` columns are texts, and the others numbers."""
    if not rows:
        return
    lines = [headings, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (
            cell.ljust(width) if number < left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        yield f"  {'  '.join(cells)}".rstrip()
