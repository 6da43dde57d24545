"""A page that is open while a job of 100,000 tasks runs, in a time that passes at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from mrflight.events.recorder import Recorder
from mrflight.page import job_page
from mrflight.page import messages as stream
from mrflight.page.job_page import LiveJob
from mrflight.system.progress import QuietProgress
from tests.support.jobs.synthetic_job import SyntheticJob


class Silent(QuietProgress):
    def notify(self, line: str) -> None:
        pass


class JobTime:
    """Records events as their time comes, while a page waits for what is new."""

    def __init__(self, job: SyntheticJob) -> None:
        self.events = list(job.events())
        self.recorder = Recorder(Silent())
        self.recording_s = 0.0
        self._now = self.events[0].at
        self._position = 0

    def now(self) -> float:
        return self._now

    def is_set(self) -> bool:
        return False

    def wait(self, timeout_s: float) -> bool:
        """Let the time pass."""
        self._now += timeout_s
        began_s = time.thread_time()
        while self._position < len(self.events) and self.events[self._position].at <= self._now:
            self.recorder.record(self.events[self._position])
            self._position += 1
        self.recording_s += time.thread_time() - began_s
        return False


class Page(NamedTuple):
    """What a page was sent of a job, and what that cost."""

    job_s: float
    events: int
    messages: list[bytes]
    share: float
    """The page's processor time as a share of that of recording the events."""


def page_of_a_job(thread_time: Callable[[], float] = time.thread_time) -> Page:
    """Return the page of a job; ``thread_time`` is the clock by which the page limits its cost."""
    job = SyntheticJob(maps=90_000, reduces=10_000, workers=64, servers=16, task_s=0.2)
    passing = JobTime(job)
    with pytest.MonkeyPatch.context() as patch:
        clock = SimpleNamespace(monotonic=passing.now, thread_time=thread_time)
        patch.setattr(stream, "time", clock)
        patch.setattr(job_page, "time", SimpleNamespace(time=passing.now))
        began_s = time.thread_time()
        messages = list(stream.messages(LiveJob(passing.recorder), passing))
        page_s = time.thread_time() - began_s - passing.recording_s
    job_s = passing.now() - passing.events[0].at
    return Page(job_s, len(passing.events), messages, page_s / passing.recording_s)
