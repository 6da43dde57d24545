"""Run a job: ``python -m mrflight.driver JOB.toml [--set section.key=value]... [--json]``.

The exit codes are described by ``--help``.
"""

from __future__ import annotations

from mrflight.system.early_interrupt import EXIT_INTERRUPTED, leave_when_interrupted

if __name__ == "__main__":
    import gc

    leave_when_interrupted()  # before the other imports, which take a while
    gc.disable()  # they make no garbage; `load_here` enables it, once all is loaded

import argparse
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NoReturn

STARTED = time.monotonic()

import msgspec  # noqa: E402 - the clock starts before anything is loaded

from mrflight.config.job_file import load_job  # noqa: E402
from mrflight.config.overrides import parse_override  # noqa: E402
from mrflight.config.spec import JobSpec  # noqa: E402
from mrflight.errors import JobError, JobFileError, MrflightError  # noqa: E402
from mrflight.events.kinds import JobEnded  # noqa: E402
from mrflight.events.recorder import Recorder  # noqa: E402
from mrflight.result import JobResult  # noqa: E402
from mrflight.scheduler.job import run_job  # noqa: E402
from mrflight.scheduler.metrics import JobMetrics, PhaseTimer  # noqa: E402
from mrflight.storage.environment import conflicting_variables, with_environment  # noqa: E402
from mrflight.system.command_line import Command  # noqa: E402
from mrflight.system.debugging import is_debugging  # noqa: E402
from mrflight.system.log_output import (  # noqa: E402
    LOG_FORMATS,
    LOG_LEVELS,
    LogLevel,
    hide_messages_of_grpc,
    log_to_stderr,
)
from mrflight.system.progress import LoggedProgress, progress_for  # noqa: E402
from mrflight.system.signals import SignalInterrupts  # noqa: E402
from mrflight.system.standard_streams import (  # noqa: E402
    EXIT_RESULT_LOST,
    open_missing_streams,
    say,
    write,
)

log = logging.getLogger("mrflight.driver")  # whether it is run as a module or not

EXIT_FAILED = 1
EXIT_WRONG_JOB = 2

_OUTCOMES = {
    "committed": "the job is committed, but",
    "failed": "the job has failed, and",
    "interrupted": "the job was interrupted, and",
}

_EXIT_CODES = (
    "Exit codes: 0 the job is committed; 1 the job failed; 2 the job file or its input is wrong; "
    "3 the job is committed, but the result of --json could not be written; 130 interrupted."
)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_job_arguments(parser)
    parser.add_argument(
        "--json", action="store_true", help="print the result on stdout, as one JSON object"
    )
    parser.add_argument(
        "--page",
        action="store_true",
        help="show a page of the job in a browser while it runs; stderr says where it is",
    )
    parser.add_argument(
        "--report",
        type=Path,
        metavar="FILE.html",
        help="write the page of the job into this one file when the job has ended",
    )
    how_much = parser.add_mutually_exclusive_group()
    how_much.add_argument(
        "-v",
        "--verbose",
        action="count",
        default=0,
        help="also say what the job does and why; -vv: each task, too",
    )
    how_much.add_argument(
        "-q", "--quiet", action="store_true", help="say only what makes the job fail"
    )
    parser.add_argument(
        "--log-level",
        choices=LOG_LEVELS,
        help="write log messages of this level and above to stderr, those of your functions, too; "
        "by default warning, with -v info, with -vv debug, with -q error",
    )
    parser.add_argument(
        "--log-format",
        choices=LOG_FORMATS,
        default="text",
        help="json: write nothing to stderr but log messages, each as one JSON object, with its "
        "job, stage and task; -v adds the progress. By default text",
    )


def add_job_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose the job and change its settings."""
    parser.add_argument("job", type=Path, metavar="JOB.toml", help="the job file")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        help="replace a value of the job file, or add one, for this run; may be repeated",
    )


def requested_job(options: argparse.Namespace) -> tuple[JobSpec, Path]:
    """Return the job that the options describe, and the folder of its file.

    The storage options include those that come from the environment: see `with_environment`.
    Variables that must not be mixed with the job's own options are removed from the environment of
    this process, and so from that of the processes that it starts. Raises JobFileError.
    """
    overrides = dict(parse_override(text) for text in options.set)
    path = options.job.resolve()
    spec = load_job(path, overrides)
    storage = with_environment(spec.storage, spec.paths, os.environ, by_name=True)
    for variable in conflicting_variables(spec.storage, spec.paths, list(os.environ)):
        del os.environ[variable]
    return msgspec.structs.replace(spec, storage=storage), path.parent


COMMAND = Command(
    "run",
    "run a job",
    "Run a job: read its inputs, move their rows by key, and commit the result to a table or a "
    "folder. If the job does not finish, its output is as it was before. Progress and messages go "
    "to stderr.",
    (
        "%(prog)s job.toml",
        "%(prog)s job.toml --set shuffle.partitions=40 --set output.table=out/other",
        "%(prog)s job.toml --json 2>job.log",
    ),
    _add_arguments,
    _EXIT_CODES,
)


def log_level(options: argparse.Namespace) -> LogLevel:
    """Return the level of ``--log-level``, or else that of ``-v`` and ``-q``."""
    if options.log_level is not None:
        chosen: LogLevel = options.log_level
        return chosen
    if options.quiet:
        return "error"
    return ("warning", "info", "debug")[min(options.verbose, 2)]


Request = Callable[[argparse.Namespace], tuple[JobSpec, Path]]
"""Returns the job that options describe, and its folder. Raises JobFileError."""


def drive(
    options: argparse.Namespace,
    request: Request = requested_job,
    describe: Callable[[JobResult], int] | None = None,
) -> int:
    """Run the job, report its result, and return the exit code.

    ``describe`` is called with the result of a committed job, and returns the exit code.
    """
    log_to_stderr(log_level(options), format=options.log_format)
    shown = None if options.quiet else sys.stderr
    progress = LoggedProgress() if options.log_format == "json" else progress_for(shown)
    with Recorder(progress) as events:
        code = _drive(options, events, request)
        if options.report is not None:
            _write_report(options, events)
        if describe is None or code:
            return code
        result = events.read(lambda view: view.result)
        assert result is not None, "a job that is committed has a result"
        return describe(result)


def _drive(options: argparse.Namespace, events: Recorder, request: Request) -> int:
    interrupts = SignalInterrupts()
    metrics = JobMetrics(PhaseTimer(STARTED))
    try:
        interrupts.install()
        with events.progress, ExitStack() as stack:
            stack.callback(interrupts.job_ends)  # even if the job does not begin
            spec, folder = request(options)
            _check_is_job(spec, options)
            if options.page and spec.cluster.page is False:
                cluster = msgspec.structs.replace(spec.cluster, page=True)
                spec = msgspec.structs.replace(spec, cluster=cluster)
            result = run_job(
                spec, folder, events, metrics, interrupts=interrupts, owns_process=True
            )
    except (KeyboardInterrupt, Exception) as error:
        interrupts.job_ends()  # in case the error came before the stack
        state, text, code = _describe_failure(error, interrupts)
        if is_debugging():
            traceback.print_exception(error)
        _tell(options, logging.ERROR, text, prefix="mrflight: ")
        result = metrics.result(state, text)
        events.keep(JobEnded(result=result))
        _print_json(options, result)
        return code
    events.keep(JobEnded(result=result))
    if not options.quiet:
        _tell(options, logging.INFO, result.summary())
    return 0 if _print_json(options, result) else EXIT_RESULT_LOST


def _check_is_job(spec: JobSpec, options: argparse.Namespace) -> None:
    """Raise JobFileError for a stream, whose events a plain run would commit again each time."""
    if spec.stream is not None:
        raise JobFileError(
            f"stream: the job is a stream; run it with mrflight ingest {options.job}, or remove "
            "[stream] to read the topic once"
        )


def _tell(options: argparse.Namespace, level: int, text: str, prefix: str = "") -> None:
    """Write a text for people to stderr, or log it where only programs read that."""
    if options.log_format == "json":
        log.log(level, "%s", text)
    else:
        say(f"{prefix}{text}\n")


def _write_report(options: argparse.Namespace, events: Recorder) -> None:
    """Write the page of the job; say so if that fails, which changes nothing about the job."""
    from mrflight.page.job_page import LiveJob
    from mrflight.page.report import report

    if events.read(lambda view: view.began is None):
        return  # the job file is wrong
    try:
        options.report.write_text(report(LiveJob(events)), encoding="utf-8")
    except OSError as error:
        text = f"--report {options.report}: it cannot be written: {error.strerror}"
        _tell(options, logging.ERROR, text, "mrflight: ")


def _describe_failure(error: BaseException, interrupts: SignalInterrupts) -> tuple[str, str, int]:
    """Return the state of the job, the message for the user, and the exit code."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__cause__
    if cause is error or (cause is not None and interrupts.was_interrupted):
        # An import, or the creation of a class, may have raised another error because of it.
        return "interrupted", interrupts.message, EXIT_INTERRUPTED
    if isinstance(error, MrflightError):
        return "failed", _message(error), _exit_code(error)
    # This is a bug of mrflight: log the whole traceback, and name the error in the JSON too.
    log.error("the driver failed", exc_info=error)
    return "failed", f"{type(error).__name__}: {error}", EXIT_FAILED


def report_error(error: MrflightError) -> int:
    """Write the message of an error to stderr, and return the exit code."""
    say(f"mrflight: {_message(error)}\n")
    return _exit_code(error)


def _exit_code(error: MrflightError) -> int:
    return EXIT_WRONG_JOB if isinstance(error, JobError) else EXIT_FAILED


def _message(error: MrflightError) -> str:
    """Return the message of an error for the user, with its notes."""
    where = "".join(f"\n  in {note}" for note in getattr(error, "__notes__", ()))
    return f"{error}{where}"


def _print_json(options: argparse.Namespace, result: JobResult) -> bool:
    """Print the result on stdout if ``--json`` asks for it; say so and return False if that fails.

    Nothing of the job is undone: its output is committed, or not, before this.
    """
    if not options.json:
        return True
    try:
        write(msgspec.json.encode(result).decode() + "\n", sys.stdout)
    except OSError as error:
        say(
            f"mrflight: {_OUTCOMES[result.state]} its result could not be written to stdout: "
            f"{error}\n"
        )
        return False
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the driver's command line and return the exit code."""
    open_missing_streams()
    hide_messages_of_grpc()
    return drive(COMMAND.parser("python -m mrflight.driver").parse_args(arguments))


def leave(code: int) -> NoReturn:
    """End the process here, because the usual end of Python and Arrow takes 70 ms."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(main())
