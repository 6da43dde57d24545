"""The interface of a progress report, and the one that shows nothing."""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import NamedTuple

from mrflight.system.closeable import Closeable

log = logging.getLogger(__name__)


class Work(NamedTuple):
    """The rows, and their bytes as they were stored or sent, that tasks have read or written."""

    rows: int = 0
    size_bytes: int = 0


NO_WORK = Work()


class ProgressReport(Closeable):
    """Receives the stages of a job as they begin, advance and end, and notices of incidents.

    `notify` and `show_output` may be called from any thread, the other methods from the job's only.
    """

    is_drawn = False
    """True if it draws bars, which others must not write between: see `show_output`."""

    @abstractmethod
    def begin(self, stage: str, tasks: int, size_bytes: int = 0, at_once: int = 1) -> None:
        """Begin a stage; ``size_bytes`` are those of all its work, and 0 if they are not known.

        ``at_once`` is how many tasks run at the same time.
        """

    @abstractmethod
    def advance(self, work: Work = NO_WORK, tasks: int = 1) -> None:
        """Report work that is done, and how many tasks have ended with it."""

    @abstractmethod
    def end(self, note: str) -> None: ...

    def begin_rows(self, rows: int) -> None:
        """Begin to give the caller so many rows, the result of the job: a row is a task."""
        self.begin("result", rows)

    @abstractmethod
    def notify(self, line: str) -> None:
        """Report in one line something that went wrong and is being recovered from."""

    def show_output(self, line: str) -> None:
        """Show a line that a user's function printed in a worker, if the bars are drawn."""

    def close(self) -> None:
        """End the report."""


class QuietProgress(ProgressReport):
    """Shows no stages and logs notices."""

    def begin(self, stage: str, tasks: int, size_bytes: int = 0, at_once: int = 1) -> None:
        pass

    def advance(self, work: Work = NO_WORK, tasks: int = 1) -> None:
        pass

    def end(self, note: str) -> None:
        pass

    def notify(self, line: str) -> None:
        log.warning("%s", line)
