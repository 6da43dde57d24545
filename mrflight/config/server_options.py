"""The options of the servers of a standing cluster, as ``mrflight serve`` and each server takes.

This module loads no more than its parsers need: the servers load a second's worth of libraries.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from mrflight.config.identity_options import add_identity_arguments
from mrflight.config.locations import parse_location
from mrflight.config.secret_reference import is_reference
from mrflight.system.command_line import Command, quantity
from mrflight.system.log_output import LOG_FORMATS
from mrflight.units import parse_bytes, parse_seconds


def add_arguments(parser: argparse.ArgumentParser, default_port: int = 0) -> None:
    """Add the options that every server has."""
    where = parser.add_mutually_exclusive_group()
    port = "" if default_port == 0 else f"; default {default_port}"
    where.add_argument(
        "--port",
        type=int,
        default=default_port,
        help=f"port to listen on; 0 takes a free one{port or ', and is the default'}",
    )
    where.add_argument(
        "--socket", type=Path, metavar="PATH", help="listen on this unix socket, not on a port"
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on; default 127.0.0.1, which only this machine reaches. Others "
        "need certificates (see docs/security.md)",
    )
    parser.add_argument(
        "--drain-timeout",
        type=quantity(parse_seconds),
        default="30 s",
        metavar="TIME",
        help="how long a server that gets SIGTERM waits for its calls to end, and a data server "
        "for what only it holds to be moved or dropped; default 30 s",
    )
    parser.add_argument(
        "--advertise",
        type=quantity(parse_location),
        metavar="LOCATION",
        help="location for clients, if there is a proxy or NAT; default where the server listens",
    )
    parser.add_argument(
        "--http-port",
        type=int,
        metavar="N",
        help="also answer HTTP on this port: /metrics for Prometheus, /healthz, /readyz, and the "
        "page of the metadata server; 0 takes a free one; by default there is none",
    )
    parser.add_argument(
        "--http-token",
        type=quantity(_reference),
        metavar="REFERENCE",
        help="where the token is that requests for more than health must show: file:PATH or "
        "env:NAME",
    )
    add_identity_arguments(parser)
    parser.add_argument(
        "--verify-client",
        action="store_true",
        help="take calls only from clients with a certificate that --tls-ca has signed",
    )
    parser.add_argument(
        "--access",
        type=Path,
        metavar="FILE",
        help="the callers that the server knows, by certificate or token, with their roles; "
        "without it every client with a certificate may do everything",
    )
    parser.add_argument(
        "--insecure-network",
        action="store_true",
        help="listen on --host although calls are neither encrypted nor authenticated: whoever "
        "reaches the port reads and changes all rows",
    )
    parser.add_argument(
        "--log-format",
        choices=LOG_FORMATS,
        default="text",
        help="json: write each log message to stderr as one JSON object; by default text",
    )
    parser.add_argument("--parent-lock", type=Path, help=argparse.SUPPRESS)


def _reference(text: str) -> str:
    if not is_reference(text):
        raise ValueError("write file:PATH or env:NAME, and not the token itself")
    return text


def _add_metadata_arguments(parser: argparse.ArgumentParser) -> None:
    add_arguments(parser, default_port=5005)
    parser.add_argument(
        "--heartbeat-timeout",
        type=quantity(parse_seconds),
        default="10 s",
        metavar="TIME",
        help="a data server is declared lost after this time without a heartbeat; default 10 s",
    )
    parser.add_argument(
        "--journal",
        type=Path,
        metavar="PATH",
        help="file in which the server keeps its state, created if it is missing, so that a server "
        "that is restarted with it continues; by default the state ends with the server",
    )


def _add_data_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--metadata",
        type=quantity(parse_location),
        required=True,
        metavar="LOCATION",
        help="location of the metadata server, which it prints when it is ready",
    )
    parser.add_argument(
        "--memory",
        type=quantity(parse_bytes),
        default="2 GiB",
        metavar="SIZE",
        help="memory for blocks, beyond which the server spills; default 2 GiB",
    )
    parser.add_argument(
        "--spill-dir",
        type=Path,
        metavar="DIR",
        help="folder to spill to, on a disk with room; default the system's temporary folder",
    )
    parser.add_argument(
        "--log-dir",
        type=Path,
        metavar="DIR",
        help="folder for event logs, on a disk that outlives the server, which takes logs only "
        "with it; a server that is started with the folder again serves its logs again",
    )
    parser.add_argument(
        "--idle-timeout",
        type=quantity(parse_seconds),
        default="10 min",
        metavar="TIME",
        help="end the connection of a client that leaves a stream standing for so long and makes "
        "no call; default 10 min",
    )
    parser.add_argument(
        "--compressed-puts",
        action="store_true",
        help="take compressed record batches from plain Flight clients; a small one may inflate to "
        "any size, so that all clients must be trusted",
    )
    add_arguments(parser)


METADATA = Command(
    "metadata",
    "run the metadata server, which comes first",
    "Run the metadata server of a standing cluster: it knows which data server holds which "
    "partition of which shuffle. When it is ready, it prints a line whose last word is its "
    "location, which data servers, jobs and clients are given. It runs until SIGTERM.",
    ("%(prog)s --port 5005 --journal /var/lib/mrflight/metadata.journal",),
    _add_metadata_arguments,
)

DATA = Command(
    "data",
    "run a data server, on each machine that is to hold rows",
    "Run a data server of a standing cluster: it holds the rows of shuffles in memory, and spills "
    "them to disk beyond that. When it is ready, it prints a line whose last word is its "
    "location. At SIGTERM it gives what only it holds to the other servers, and ends.",
    ('%(prog)s --metadata grpc+tcp://127.0.0.1:5005 --memory "8 GiB" --spill-dir /mnt/spill',),
    _add_data_arguments,
)
