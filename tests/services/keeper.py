"""Run as a program: keeps one server for all workers of a run of the suite, until the run ends.

    python -m tests.services.keeper RUN_FOLDER MODULE FUNCTION

The function gives a server that is ready, as `running_kafka` of `tests.services.kafka` does. A
first start that fails is tried again, at another port and in another folder, as all tests of that
server fail with it. What came of it is in files beside each other, which `shared` reads.
"""

from __future__ import annotations

import pickle
import sys
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.services.shared import ServerReport
from tests.support.suite import slack
from tests.support.suite.run import await_end_of_run

TRIES = 2


def main(run: Path, module: str, function: str) -> int:
    """Return 1 if the server has not started, and else 0 after the end of the run."""
    slack.read_from(run)
    report = ServerReport.of(run, function)
    running = getattr(import_module(module), function)
    with ExitStack() as stack:
        try:
            server = _started(running, stack, report)
        except Exception as error:  # whoever asks for the server raises it
            report.write(report.failed, f"{type(error).__name__}: {error}".encode())
            return 1
        report.write(report.handle, pickle.dumps(server))
        await_end_of_run(run)
    return 0


def _started(
    running: Callable[[], AbstractContextManager[Any]], stack: ExitStack, report: ServerReport
) -> Any:
    """Return the handle of a server that is ready, after the first try or the second."""
    for tries_left in reversed(range(TRIES)):
        try:
            return stack.enter_context(running())
        except Exception:
            if not tries_left:
                raise
            report.write(report.first_failure, traceback.format_exc().encode())
    raise AssertionError("there is a last try")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:4]))
