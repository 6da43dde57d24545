"""``mrflight ingest``: runs a stream."""

from __future__ import annotations

import argparse
import logging
import sys
import traceback
from typing import TYPE_CHECKING, NoReturn

import msgspec

from mrflight import driver
from mrflight.errors import JobError, MrflightError
from mrflight.events.recorder import Recorder
from mrflight.frontend import ingest_verbs
from mrflight.streams.stream_result import StreamResult
from mrflight.system.command_line import Command
from mrflight.system.debugging import is_debugging
from mrflight.system.log_output import LogLevel, log_to_stderr
from mrflight.system.standard_streams import say, write

if TYPE_CHECKING:
    from mrflight.streams.stream_session import StreamSession

log = logging.getLogger(__name__)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    driver.add_job_arguments(parser)
    parser.add_argument(
        "--until-caught-up",
        action="store_true",
        help="end at the offsets that are the ends of the topics now, as for a cron job",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="decode the first ten events of each partition, show what they are, write nothing",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the result on stdout, as one JSON object"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="say only what makes it fail")
    parser.add_argument("-v", "--verbose", action="count", default=0, help="also say what it does")


COMMAND = Command(
    "ingest",
    "commit a topic to a table, batch by batch",
    "Commit the events of Kafka topics to a table, batch by batch, each event exactly once. "
    "SIGTERM ends it after the commit of the batch that runs.",
    (
        "%(prog)s job.toml",
        "%(prog)s job.toml --until-caught-up",
        "%(prog)s job.toml --dry-run",
        "%(prog)s status job.toml      # or offsets, verify, replay-rejected",
    ),
    _add_arguments,
    "Exit codes: 0 it is caught up, or was stopped and has committed; 1 it failed; 2 the job file "
    "or its input is wrong; 130 interrupted.",
)


def run(options: argparse.Namespace) -> NoReturn:
    """Run the stream of a job file, and end the process."""
    driver.leave(_dry_run(options) if options.dry_run else _run(options))


def _dry_run(options: argparse.Namespace) -> int:
    from mrflight.streams.dry_run import dry_run

    log_to_stderr(_log_level(options))
    return ingest_verbs.answer(options, dry_run)[0]


def _run(options: argparse.Namespace) -> int:
    from mrflight.streams.stream_session import StreamSession
    from mrflight.streams.stream_signals import StreamInterrupts

    log_to_stderr(_log_level(options))
    interrupts = StreamInterrupts()
    session = StreamSession(interrupts, _silent if options.quiet else _say)
    try:
        interrupts.install()
        with Recorder() as events:
            spec, folder = driver.requested_job(options)
            result = session.run(spec, folder, events, until_caught_up=options.until_caught_up)
    except (KeyboardInterrupt, Exception) as error:
        if is_debugging():
            traceback.print_exception(error)
        return _failed(options, session, error)
    if not options.quiet:
        _say(result.summary())
    _print_json(options, result)
    return 0


def _log_level(options: argparse.Namespace) -> LogLevel:
    if options.quiet:
        return "error"
    return ("warning", "info", "debug")[min(options.verbose, 2)]


def _failed(options: argparse.Namespace, session: StreamSession, error: BaseException) -> int:
    if isinstance(error, MrflightError):
        notes = "".join(f"\n  in {note}" for note in getattr(error, "__notes__", ()))
        text, code = f"{error}{notes}", 2 if isinstance(error, JobError) else 1
    elif isinstance(error, KeyboardInterrupt):
        text, code = "interrupted; what was not committed is read again the next time", 130
    else:
        log.error("the stream failed", exc_info=error)
        text, code = f"{type(error).__name__}: {error}", 1
    say(f"mrflight: {text}\n")
    _print_json(options, session.result("interrupted" if code == 130 else "failed", text))
    return code


def _print_json(options: argparse.Namespace, result: StreamResult) -> None:
    if options.json:
        write(msgspec.json.encode(result).decode() + "\n", sys.stdout)


def _say(text: str) -> None:
    say(f"{text}\n")


def _silent(text: str) -> None:
    return
