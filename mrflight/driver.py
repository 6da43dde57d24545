"""The driver: ``python -m mrflight.driver JOB.toml [--set section.key=value]... [--json]``.

Exit codes: 0 committed, 1 the job failed, 2 the job file or its input is
wrong, 130 interrupted.
"""

from __future__ import annotations

from mrflight.system.early_interrupt import EXIT_INTERRUPTED, leave_when_interrupted

if __name__ == "__main__":
    leave_when_interrupted()  # from the first moment on; the imports take a while

import argparse
import logging
import math
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import NoReturn, TextIO

STARTED = time.monotonic()

import msgspec  # noqa: E402 - the clock starts before anything is loaded

from mrflight.config.job_file import load_job, parse_override  # noqa: E402
from mrflight.config.spec import JobSpec  # noqa: E402
from mrflight.errors import JobError, MrflightError  # noqa: E402
from mrflight.result import JobResult  # noqa: E402
from mrflight.scheduler.job import run_job  # noqa: E402
from mrflight.scheduler.metrics import JobMetrics  # noqa: E402
from mrflight.scheduler.phase_timer import PhaseTimer  # noqa: E402
from mrflight.storage.environment import not_to_be_mixed, with_environment  # noqa: E402
from mrflight.system.interrupts import Interrupts  # noqa: E402
from mrflight.system.progress import progress_for  # noqa: E402
from mrflight.system.signal_relay import SignalRelay  # noqa: E402

log = logging.getLogger(__name__)

EXIT_FAILED = 1
EXIT_WRONG_JOB = 2

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_COMMIT_GRACE_S = 2.5
"""For a commit that is under way when an interrupt comes. It takes milliseconds, but may wait for
other writers; all is to end within 5 s."""
_AGAIN_S = 0.1
"""After which an interrupt that was lost is raised once more."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The driver's options."""
    add_job_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON on stdout")


def add_job_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that say which job."""
    parser.add_argument("job", type=Path, metavar="JOB.toml", help="the job file")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        help="replace a value of the job file",
    )


def asked_job(options: argparse.Namespace) -> tuple[JobSpec, Path]:
    """The job that options ask for, and its folder; JobFileError where it is none.

    With what the environment says of its stores: see `with_environment`. What may not be mixed
    with the job's own options goes out of this process's environment, and so out of those that it
    starts.
    """
    overrides = dict(parse_override(text) for text in options.set)
    path = options.job.resolve()
    spec = load_job(path, overrides)
    storage = with_environment(spec.storage, spec.paths, os.environ)
    for variable in not_to_be_mixed(spec.storage, spec.paths, list(os.environ)):
        del os.environ[variable]
    return msgspec.structs.replace(spec, storage=storage), path.parent


def drive(options: argparse.Namespace) -> int:
    """Run the job and report it; the exit code."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    signals = _Signals()
    record = JobMetrics(PhaseTimer(STARTED))
    try:
        signals.handle()
        with progress_for(sys.stderr) as progress, ExitStack() as stack:
            stack.callback(signals.job_ends)  # also where it never began
            spec, folder = asked_job(options)
            result = run_job(
                spec,
                folder,
                progress,
                record,
                interrupts=signals,
                owns_process=True,
            )
    except (KeyboardInterrupt, Exception) as error:
        signals.job_ends()  # where not even that was entered
        return _report_failure(options, record, *_told(error, signals))
    _say(f"{result.summary()}\n", sys.stderr)
    _print_json(options, result)
    return 0


class _Signals(Interrupts):
    """Those of a process that is the job's: signals, each of which counts once at most."""

    def __init__(self) -> None:
        super().__init__()
        self._commits = False
        self._is_decided = False

    def handle(self) -> None:
        """From now on signals come here."""
        sys.unraisablehook = self._hide
        signal.signal(signal.SIGALRM, self._raise)
        for number in _INTERRUPTS:
            if signal.getsignal(number) != signal.SIG_IGN:  # as nohup, or a shell's &, has it
                signal.signal(number, self._interrupt)

    def threads_begin(self) -> None:
        """They may take signals, which are the main one's to handle."""
        SignalRelay()

    def commit_begins(self) -> None:
        """From now on an interrupt ends the job only if this lasts `_COMMIT_GRACE_S` longer."""
        self._commits = True

    def job_ends(self) -> None:
        self._is_decided = True
        signal.setitimer(signal.ITIMER_REAL, 0)

    @property
    def have_come(self) -> bool:
        return not math.isinf(self._first_at)

    @property
    def told(self) -> str:
        if not self._commits:
            return "interrupted"
        return (
            "interrupted in the commit; look at the table before running the job again (with a "
            "job.run_id it commits once in any case)"
        )

    def _interrupt(self, signum: int, frame: FrameType | None) -> None:
        is_first = not self.have_come
        self._note()
        if self._is_decided:
            self._news.put(None)
        elif is_first:
            after_s = _COMMIT_GRACE_S if self._commits else _AGAIN_S
            signal.setitimer(signal.ITIMER_REAL, after_s, _AGAIN_S)
            if not self._commits:
                raise KeyboardInterrupt

    def _raise(self, signum: int, frame: FrameType | None) -> None:
        """Raise the interrupt again, unless it is under way.

        One that hit a __del__, a callback of a weak reference, as an import has them, or C that
        goes on after what its calls raise, was dropped there, and the job would go on.
        """
        if not (self._is_decided or _is_unwinding()):
            raise KeyboardInterrupt

    def caught(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _hide(self, lost: sys.UnraisableHookArgs) -> None:
        """Say nothing of an interrupt that was dropped: it is raised again."""
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            sys.__unraisablehook__(lost)


def _is_unwinding() -> bool:
    """Whether an interrupt is under way: what it ends puts things in order."""
    error = sys.exc_info()[1]
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _told(error: BaseException, signals: _Signals) -> tuple[str, str, int]:
    """The state of the job, what is said of it, and the exit code."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__cause__
    if cause is error or (cause is not None and signals.have_come):
        # Of which an import, or the making of a class, may have made another error.
        return "interrupted", signals.told, EXIT_INTERRUPTED
    if isinstance(error, MrflightError):
        is_wrong = isinstance(error, JobError)
        return "failed", message(error), EXIT_WRONG_JOB if is_wrong else EXIT_FAILED
    # A bug of ours: told in full, and in the JSON as well.
    log.error("the driver failed", exc_info=error)
    return "failed", f"{type(error).__name__}: {error}", EXIT_FAILED


def message(error: MrflightError) -> str:
    """What users are told of an error."""
    where = "".join(f"\n  in {note}" for note in getattr(error, "__notes__", ()))
    return f"{error}{where}"


def _report_failure(
    options: argparse.Namespace, record: JobMetrics, state: str, told: str, code: int
) -> int:
    _say(f"mrflight: {told}\n", sys.stderr)
    _print_json(options, record.result(state, told))
    return code


def _print_json(options: argparse.Namespace, result: JobResult) -> None:
    if options.json:
        _say(msgspec.json.encode(result).decode() + "\n", sys.stdout)


def _say(text: str, stream: TextIO) -> None:
    """Write to a reader who may be gone by now, which changes nothing of what happened."""
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        log.warning("nobody reads what the driver says: %s", error)
        # Python would fail once more, and with its own exit code, when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def open_missing_streams() -> None:
    """Give a process that was started without stdout or stderr (``>&-``) somewhere to write."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
            os.set_inheritable(number, True)  # dup2 leaves that out where it was opened as number
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of the driver."""
    open_missing_streams()
    parser = argparse.ArgumentParser(prog="python -m mrflight.driver", description=__doc__)
    add_arguments(parser)
    return drive(parser.parse_args(arguments))


def leave(code: int) -> NoReturn:
    """End the process here: what Python and Arrow would still put in order takes 70 ms."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(main())
