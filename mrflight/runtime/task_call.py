"""Calls a task's function in a worker, and reports what it took."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from mrflight.events.attempt_counts import COUNTS
from mrflight.events.task_report import NO_REPORT, TaskReport, attach_report, server_name
from mrflight.system.log_label import LogLabel, label_process

R = TypeVar("R")

_RSS_UNIT = 1024
"""Linux has the most resident memory of a process in KiB."""

_worker_name = ""


def name_worker(name: str) -> None:
    """Set the name of this process in reports; by default it is the host and the process id."""
    global _worker_name
    _worker_name = name


def worker_name() -> str:
    """Return the name of this process in reports."""
    return _worker_name or f"{os.uname().nodename}:{os.getpid()}"


class Reported(msgspec.Struct, Generic[R], frozen=True):
    """The result of a task, with the report of its worker."""

    result: R
    report: TaskReport


def opened(answer: Any) -> tuple[Any, TaskReport]:
    """Return the result of a task, and the report if it ran as a `TaskCall`."""
    if isinstance(answer, Reported):
        return answer.result, answer.report
    return answer, NO_REPORT


class TaskCall(msgspec.Struct, frozen=True):
    """A function of a task, to be called in a worker.

    The call returns `Reported`. An error that it raises carries the report.
    """

    function: Callable[..., Any]
    label: LogLabel

    @property
    def __func__(self) -> Callable[..., Any]:
        """The function as it is defined, which tells the tasks of one stage from others."""
        function: Callable[..., Any] = getattr(self.function, "__func__", self.function)
        return function

    def __call__(self, *args: Any, **kwargs: Any) -> Reported[Any]:
        label_process(self.label)
        COUNTS.begin()
        began, cpu_began = time.monotonic(), time.process_time()
        try:
            result = self.function(*args, **kwargs)
        except BaseException as error:
            attach_report(error, _report(began, cpu_began))
            raise
        finally:
            label_process(LogLabel(self.label.job))
        return Reported(result, _report(began, cpu_began))


def _report(began: float, cpu_began: float) -> TaskReport:
    return TaskReport(
        worker_name(),
        round(time.monotonic() - began, 4),
        round(time.process_time() - cpu_began, 4),
        {server_name(location): size for location, size in COUNTS.sent.items()},
        {server_name(location): size for location, size in COUNTS.fetched.items()},
        COUNTS.spilled_bytes,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT,
        COUNTS.operators,
    )
