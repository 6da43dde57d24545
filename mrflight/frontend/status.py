"""``mrflight status``: the servers and shuffles of a cluster."""

from __future__ import annotations

import argparse

from mrflight import driver
from mrflight.errors import MrflightError
from mrflight.system.command_line import Command
from mrflight.system.standard_streams import print_answer
from mrflight.units import format_bytes, format_count


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "metadata",
        metavar="LOCATION",
        help="location of the metadata server, which it prints when it is ready",
    )


COMMAND = Command(
    "status",
    "show the servers and shuffles of a cluster",
    "Show the data servers of a standing cluster and the shuffles that they hold, as its metadata "
    "server sees them.",
    ("%(prog)s grpc+tcp://127.0.0.1:5005",),
    _add_arguments,
)


def run(options: argparse.Namespace) -> int:
    """Print the status and return the exit code."""
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
    return print_answer("\n".join(lines))
