"""Writes log messages to stderr: the one place where a command configures `logging`."""

from __future__ import annotations

import logging
import sys
from typing import Literal, TextIO, get_args

LogLevel = Literal["debug", "info", "warning", "error"]

LOG_LEVELS: tuple[LogLevel, ...] = get_args(LogLevel)


def log_to_stderr(level: LogLevel, *, with_time: bool = False) -> None:
    """Write messages of this level and above to stderr.

    Nothing is changed where a program has configured logging already: a server of a job is forked
    from its driver, and logs as that does.
    """
    form = "%(levelname)s %(name)s: %(message)s"
    logging.basicConfig(
        level=level.upper(),
        format=f"%(asctime)s {form}" if with_time else form,
        handlers=[_StderrHandler()],
    )


class _StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to what `sys.stderr` is now: while bars are drawn, it leaves them whole."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, _: TextIO) -> None:
        pass
