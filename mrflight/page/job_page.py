"""The page of a job, live from its recorder or from the history that it has left."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TypeVar

from msgspec.structs import replace

from mrflight.events.job_view import JobView
from mrflight.events.recorder import Recorder
from mrflight.page.contract import AttemptColumns, IncidentRow, PageParts, PageState
from mrflight.page.job_metrics import job_metrics
from mrflight.page.job_state import attempt_columns, began_at, page_parts, page_state
from mrflight.page.measured import Measured
from mrflight.page.medians import Medians

T = TypeVar("T")


_CUT_OFF = (
    "The history ends before the job: its driver was killed, or had not written more when this was "
    "read."
)


class LiveJob:
    """A job that runs in this process. What several pages ask for at a time is made once."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._medians = Medians()
        self._incidents: list[IncidentRow] = []

    def state(self) -> PageState:
        return self._recorder.read(lambda view: page_state(view, time.time(), self._medians))

    def parts(self) -> PageParts:
        return self._recorder.read(lambda view: page_parts(view, self._incidents))

    def attempts(self, since: int, most: int) -> AttemptColumns:
        return self._recorder.read(
            lambda view: attempt_columns(view.spans, since, most, began_at(view))
        )

    def wait(self, position: int, timeout_s: float) -> int:
        return self._recorder.news(position, timeout_s).next

    def measured(self) -> Iterable[Measured]:
        return self._recorder.read(lambda view: list(job_metrics(view)))

    @property
    def is_over(self) -> bool:
        return self._recorder.read(lambda view: view.ended_at is not None)


class EndedJob:
    """A job of which there is a history."""

    is_over = True

    def __init__(self, view: JobView) -> None:
        self._view = view
        self._medians = Medians()

    def state(self) -> PageState:
        state = page_state(self._view, self._view.last_at, self._medians)
        if self._view.result is not None:
            return state
        return replace(state, state="cut off", ended=state.elapsed, error=_CUT_OFF)

    def parts(self) -> PageParts:
        return page_parts(self._view, [])

    def attempts(self, since: int, most: int) -> AttemptColumns:
        return attempt_columns(self._view.spans, since, most, began_at(self._view))

    def wait(self, position: int, timeout_s: float) -> int:
        """Return at once: nothing will change."""
        return position

    def measured(self) -> Iterable[Measured]:
        return job_metrics(self._view)
