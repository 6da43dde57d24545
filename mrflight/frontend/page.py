"""``mrflight page``: what a job did, from the history that it has left."""

from __future__ import annotations

import argparse
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mrflight import driver
from mrflight.errors import InputError, JobFileError, MrflightError
from mrflight.system.command_line import Command
from mrflight.system.early_interrupt import unwind_when_interrupted
from mrflight.system.scratch import ScratchFolder, temporary_folder
from mrflight.system.standard_streams import print_answer, say
from mrflight.units import format_bytes

if TYPE_CHECKING:
    from mrflight.page.job_page import EndedJob


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "history",
        type=Path,
        metavar="EVENTS",
        help="the history of a job, or the folder job.events, of which the newest is taken",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--report",
        type=Path,
        metavar="FILE.html",
        help="write the page into this one file, which needs nothing else, and end",
    )
    where.add_argument(
        "--port",
        type=int,
        default=0,
        help="loopback port of the page; 0 takes a free one, and is the default",
    )


COMMAND = Command(
    "page",
    "show what a job did, in a browser",
    "Show the page of a job that has ended, from the history that job.events makes it write: its "
    "stages and tasks, partitions, memory, and what went wrong. It is served to this machine only, "
    "until Ctrl-C. A job that runs shows its page with mrflight run --page.",
    ("%(prog)s events/", "%(prog)s events/3f9a1c7e42d84b05.jsonl --report job.html"),
    _add_arguments,
)


def run(options: argparse.Namespace) -> int:
    """Write the report, or serve the page until the process is ended; return the exit code."""
    from mrflight.events.history import read_view
    from mrflight.page.job_page import EndedJob

    try:
        job = EndedJob(read_view(_history(options.history)))
        if options.report is None:
            return _serve(job, options.port)
        return _write(job, options.report)
    except MrflightError as error:
        return driver.report_error(error)


def _history(path: Path) -> Path:
    """Return a history: the file itself, or the newest one of a folder."""
    from mrflight.events.history import SUFFIX

    if not path.is_dir():
        return path
    found = sorted(path.glob(f"*{SUFFIX}"), key=lambda each: each.stat().st_mtime)
    if not found:
        raise InputError(f"{path} has no histories (*{SUFFIX}); set job.events to write some")
    return found[-1]


def _write(job: EndedJob, path: Path) -> int:
    from mrflight.page.report import report

    text = report(job)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise JobFileError(f"--report {path}: it cannot be written: {error.strerror}") from error
    return print_answer(f"wrote {path}, {format_bytes(len(text.encode()))}")


def _serve(job: EndedJob, port: int) -> int:
    from mrflight.page.live_page import open_page

    with ScratchFolder("page", temporary_folder()) as folder:
        page, link = open_page(job, port, folder.path)
        with page:
            say(f"the page: {link}\nCtrl-C ends it.\n")
            with suppress(KeyboardInterrupt):
                unwind_when_interrupted()
                threading.Event().wait()
    return 0
