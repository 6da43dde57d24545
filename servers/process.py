"""The life cycle of a server process: its address, its ready line, and its end."""

from __future__ import annotations

import argparse
import logging
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from mrflight.errors import MrflightError
from mrflight.system.command_line import Command
from mrflight.system.early_interrupt import EXIT_INTERRUPTED, unwind_when_interrupted
from mrflight.system.log_output import hide_messages_of_grpc, log_to_stderr
from mrflight.system.parent_watch import exit_with_parent
from mrflight.system.standard_streams import open_missing_streams

from .http_port import Observed

log = logging.getLogger(__name__)

MAX_OPEN_FILES = 65_536
"""Each worker of a cluster has a connection to each server. With Linux's usual limit of 1,024 a
server would refuse the connections of more workers."""


def public_location(port: int, listen: str, advertise: str | None) -> str:
    """Return the location for clients: the advertised one, or the one that the server has taken."""
    if advertise is not None:
        return advertise
    if listen.startswith("grpc+unix:"):
        return listen
    return f"{listen.rpartition(':')[0]}:{port}"


@dataclass(frozen=True)
class Running:
    """A server that answers at ``location`` until ``drain`` is called or its process ends.

    ``reload`` reads its certificates again. ``clean_up`` removes the server's files in a process
    that ends without ``drain``. ``observed`` is what the server tells about itself.
    """

    location: str
    drain: Callable[[], None]
    reload: Callable[[], None] = lambda: None
    clean_up: Callable[[], None] = lambda: None
    observed: Observed | None = None


def run_until_stopped(name: str, running: Running, drain_timeout_s: float) -> None:
    """Print the ready line, wait for SIGTERM or SIGINT, and drain the server.

    At SIGHUP it reads its certificates again.

    If that takes longer than the timeout, the process calls ``clean_up`` and ends with code 1.
    """
    location = running.location
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    # The signal may reach one of gRPC's threads, which would not wake this one from a lock.
    signal.set_wakeup_fd(wake)
    sys.stdout.write(f"mrflight {name} server ready at {location}\n")
    sys.stdout.flush()
    while os.read(woken, 1)[0] == signal.SIGHUP:
        running.reload()
    log.info("%s: stopping", location)

    def end() -> None:  # for example because a client never ends its call
        try:
            log.warning(
                "%s: after %g s (--drain-timeout) there are still calls, or partitions that no "
                "other server has; ending without them",
                location,
                drain_timeout_s,
            )
            running.clean_up()
        finally:
            os._exit(1)

    late = threading.Timer(drain_timeout_s, end)
    late.daemon = True
    late.start()
    try:
        running.drain()
    except (pa.ArrowException, OSError) as error:
        raise MrflightError(
            f"the {name} server at {location} did not stop cleanly: {error}"
        ) from error


def raise_open_file_limit() -> None:
    """Raise the limit of open files to `MAX_OPEN_FILES` or the hard limit; never lower it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(MAX_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def main(
    serve: Callable[[argparse.Namespace], None],
    command: Command,
    arguments: Sequence[str] | None = None,
) -> None:
    """Run a server command; if it cannot start, print one line to stderr and exit with code 2."""
    open_missing_streams()
    hide_messages_of_grpc()
    options = command.parser(f"python -m mrflight.servers.{command.name}").parse_args(arguments)
    log_to_stderr("info", format=options.log_format, with_time=True)
    if options.parent_lock is not None:
        exit_with_parent(options.parent_lock)
    try:
        unwind_when_interrupted()
        serve(options)
    except KeyboardInterrupt:  # the server was not ready yet
        sys.exit(EXIT_INTERRUPTED)
    except MrflightError as error:
        sys.stderr.write(f"mrflight: {error}\n")
        sys.exit(2)
    except (pa.ArrowException, OSError, OverflowError) as error:  # Flight cannot listen
        where = options.socket or f"{options.host}:{options.port}"
        sys.stderr.write(f"mrflight: cannot serve at {where} (is it taken?): {error}\n")
        sys.exit(2)
