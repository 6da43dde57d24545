"""``mrflight tune``: its options, its output, and its effects on files."""

from __future__ import annotations

import argparse
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mrflight import driver
from mrflight.errors import JobFileError, MrflightError
from mrflight.system.command_line import Command, quantity
from mrflight.system.early_interrupt import EXIT_INTERRUPTED, unwind_when_interrupted
from mrflight.system.log_output import log_to_stderr
from mrflight.system.standard_streams import print_answer, say
from mrflight.units import parse_bytes, parse_seconds

if TYPE_CHECKING:
    from mrflight.frontend.tune.experiment import Outcome
    from mrflight.frontend.tune.job_facts import TunedJob


def _more_than_none(parse: Callable[[str], float]) -> Callable[[str], float]:
    """Return the parser of a quantity that must not be 0."""

    def parsed(text: str) -> float:
        if value := parse(text):
            return value
        raise ValueError("must be more than 0")

    return parsed


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    driver.add_job_arguments(parser)
    parser.add_argument(
        "--budget",
        type=quantity(_more_than_none(parse_seconds)),
        default="2 min",
        metavar="TIME",
        help="how long to run trials; default '2 min'",
    )
    parser.add_argument(
        "--sample",
        type=quantity(_more_than_none(parse_bytes)),
        metavar="SIZE",
        help="how much of the input trials read, such as '256 MiB'; by default as much as can be "
        "read some twenty times within the budget, and at most 1 GiB",
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE.svg", help="draw the times by partitions to this file"
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="write what is recommended into the job file, whose comments and layout are kept",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


COMMAND = Command(
    "tune",
    "try a job on a sample with other settings, and recommend some",
    "Run a job on a sample of its input with other numbers of partitions and workers, other memory "
    "and other compression, and recommend the settings that are worth a change. The output of the "
    "job is not touched: trials write to a temporary folder, which is removed.",
    (
        "%(prog)s job.toml",
        '%(prog)s job.toml --budget "10 min" --plot times.svg',
        "%(prog)s job.toml --write",
    ),
    _add_arguments,
)


def run(options: argparse.Namespace) -> int:
    """Tune the job; the exit codes are those of a job."""
    unwind_when_interrupted()
    log_to_stderr("warning")
    try:
        with _interruptible():
            return _tune(options)
    except KeyboardInterrupt:
        say("mrflight: interrupted\n")
        return EXIT_INTERRUPTED
    except MrflightError as error:
        return driver.report_error(error)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Take SIGTERM and SIGHUP for an interrupt, so that the trial ends and leaves no files."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP)
    taken = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]
    for number in taken:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _tune(options: argparse.Namespace) -> int:
    from mrflight.frontend.tune import report
    from mrflight.frontend.tune.job_facts import TunedJob

    spec, folder = driver.requested_job(options)
    job = TunedJob(spec, folder)
    outcome = _try(job, options)
    answer = report.as_json(job, outcome) if options.json else report.report(job, outcome)
    if code := print_answer(answer):
        return code
    if options.plot is not None:
        _plot(job, outcome, options.plot)
    if options.write:
        _write(job, outcome, options.job)
    return 0


def _try(job: TunedJob, options: argparse.Namespace) -> Outcome:
    """Make the trials; none of their files is left, whatever happens."""
    from mrflight.frontend.tune.experiment import Experiment
    from mrflight.frontend.tune.report import describe_run
    from mrflight.frontend.tune.trial import Run
    from mrflight.frontend.tune.trial_process import TrialProcess
    from mrflight.system.scratch import ScratchFolder

    def note(run: Run) -> None:
        say(f"{describe_run(run)}\n")

    with ScratchFolder("tune", job.settings.spill_root) as scratch:
        process = TrialProcess(job, options.job.resolve(), options.set, scratch.path)
        return Experiment(job, process.run, time.monotonic, note).run(
            options.budget, options.sample
        )


def _plot(job: TunedJob, outcome: Outcome, path: Path) -> None:
    from mrflight.frontend.tune.report import plot

    try:
        path.write_text(plot(job, outcome), encoding="utf-8")
    except OSError as error:
        raise JobFileError(f"--plot: {path} cannot be written: {error}") from error


def _write(job: TunedJob, outcome: Outcome, path: Path) -> None:
    from mrflight.frontend.tune.design import changed_keys
    from mrflight.frontend.tune.job_file_edit import set_keys

    found = outcome.recommendation
    changes = changed_keys(found.before, found.after, job.facts)
    if not changes:
        say(f"{path} is left as it is\n")
        return
    set_keys(path, changes)
    say(f"{path}: {', '.join(changes)} written\n")
