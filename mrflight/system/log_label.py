"""The job, the stage and the task that a log record is about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import msgspec


class LogLabel(msgspec.Struct, frozen=True):
    """What runs in a thread, or in a process; empty where nothing does."""

    job: str = ""
    """The id of the job."""
    stage: str = ""
    task: str = ""
    """The name of the task."""
    attempt: int = 0


_NONE = LogLabel()
_of_thread: ContextVar[LogLabel] = ContextVar("log_label", default=_NONE)
_of_process = _NONE


def current_label() -> LogLabel:
    """Return the label of this thread, or else that of the process."""
    label = _of_thread.get()
    return _of_process if label is _NONE else label


@contextmanager
def labelled(label: LogLabel) -> Iterator[None]:
    """Label what this thread logs."""
    token = _of_thread.set(label)
    try:
        yield
    finally:
        _of_thread.reset(token)


def label_process(label: LogLabel) -> None:
    """Label what this process logs, in threads that have no label: it does nothing else."""
    global _of_process
    _of_process = label
