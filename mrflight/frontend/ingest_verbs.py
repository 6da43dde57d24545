"""``mrflight ingest status`` and its like: they look at a stream from outside."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from mrflight import driver
from mrflight.errors import MrflightError
from mrflight.system.command_line import Command
from mrflight.system.early_interrupt import EXIT_INTERRUPTED, unwind_when_interrupted
from mrflight.system.standard_streams import print_answer

EXIT_WRONG = 1
"""`verify` has found events that are doubled or lost."""


class Answer(Protocol):
    """What a command has found out."""

    def summary(self) -> str: ...


def join_verb(arguments: Sequence[str]) -> Sequence[str]:
    """Return arguments whose first two words are one if they are a command, ``ingest status``."""
    verb = " ".join(arguments[:2])
    if any(verb == command.name for command, _ in COMMANDS):
        return [verb, *arguments[2:]]
    return arguments


def answer(options: argparse.Namespace, find: Callable[[Any], Answer]) -> tuple[int, Answer | None]:
    """Print what ``find`` returns for the stream of the job file; return the exit code, too."""
    unwind_when_interrupted()
    try:
        from mrflight.streams.stream_job import StreamJob

        found = find(StreamJob.of(*driver.requested_job(options)))
    except KeyboardInterrupt:
        sys.stderr.write("mrflight: interrupted\n")
        return EXIT_INTERRUPTED, None
    except MrflightError as error:
        return driver.report_error(error), None
    text = msgspec.json.encode(found).decode() if options.json else found.summary()
    return print_answer(text), found


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    driver.add_job_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the answer as one JSON object")


def _status(options: argparse.Namespace) -> int:
    from mrflight.streams.stream_status import read_status

    return answer(options, read_status)[0]


def _offsets(options: argparse.Namespace) -> int:
    from mrflight.streams.stream_status import read_offsets

    return answer(options, read_offsets)[0]


def _verify(options: argparse.Namespace) -> int:
    from mrflight.streams.verify import verify

    code, found = answer(options, verify)
    is_wrong = found is not None and not getattr(found, "is_proved", True)
    return code or (EXIT_WRONG if is_wrong else 0)


def _replay(options: argparse.Namespace) -> int:
    from mrflight.streams.replay import replay_rejected

    return answer(options, replay_rejected)[0]


COMMANDS: tuple[tuple[Command, Callable[[argparse.Namespace], int]], ...] = (
    (
        Command(
            "ingest status",
            "show how far a stream is",
            "Show how far a stream is: the next offset of each partition that the table has "
            "recorded, the end of the topic, how many events wait and for how long.",
            ("%(prog)s job.toml", "%(prog)s job.toml --json"),
            _add_arguments,
        ),
        _status,
    ),
    (
        Command(
            "ingest offsets",
            "print the offsets that the table of a stream has recorded",
            "Print the offsets that the table of a stream, and the table of its dead letters, have "
            "recorded. No broker is asked.",
            ("%(prog)s job.toml --json",),
            _add_arguments,
        ),
        _offsets,
    ),
    (
        Command(
            "ingest verify",
            "prove from the table that every event is there once",
            "Prove from the table that every event is there once: the commits in its log follow "
            "each other without gap or overlap, no offset has two rows, and those without a row "
            "are dead letters, or have no message in Kafka.",
            ("%(prog)s job.toml",),
            _add_arguments,
            "Exit codes: 0 nothing is wrong; 1 an event is there twice, or is missing, or the "
            "table could not be read; 2 the job file or its input is wrong; 130 interrupted.",
        ),
        _verify,
    ),
    (
        Command(
            "ingest replay-rejected",
            "decode the dead letters of a stream again, and commit those that can be",
            "Decode the dead letters of a stream again with the job as it is now, append those "
            "that can be decoded to the table, each of them once, and remove them from the dead "
            "letters. The others stay.",
            ("%(prog)s job.toml",),
            _add_arguments,
        ),
        _replay,
    ),
)
