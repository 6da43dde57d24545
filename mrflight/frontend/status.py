"""``mrflight status``: the servers and shuffles of a cluster."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
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
    from mrflight.shuffle.wire.protocol import ShuffleStatus, StatusResponse

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
    for server in status.servers:
        size = format_bytes(server.stored_bytes)
        yield f"  {server.location}: {format_count(server.partitions, 'partition')}, {size}"
    yield format_count(len(status.shuffles), "shuffle")
    for shuffle in status.shuffles:
        yield f"  {_shuffle(shuffle)}"


def _shuffle(shuffle: ShuffleStatus) -> str:
    job = f" of job {shown_job_name(shuffle.job)}" if shuffle.job else ""
    size = format_bytes(shuffle.size_bytes)
    return (
        f"{shuffle.id}{job}: {format_count(shuffle.partitions, 'partition')}, "
        f"{format_count(shuffle.maps, 'map')}, {format_count(shuffle.rows, 'row')}, {size}"
    )
