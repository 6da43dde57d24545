"""Records the events of a job: folds them, keeps the last ones, shows them, writes a history."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from mrflight.events.driver_stages import DriverStages
from mrflight.events.job_view import JobView, encode_view
from mrflight.events.kinds import (
    AnyEvent,
    AttemptEnded,
    Incident,
    IncidentKind,
    JobEnded,
    StageEnded,
)
from mrflight.events.shown import ShownProgress
from mrflight.system.closeable import Closeable
from mrflight.system.progress import ProgressReport

if TYPE_CHECKING:
    from mrflight.events.bins import Bins
    from mrflight.events.history import HistoryWriter

MAX_ATTEMPTS = 100_000
"""Further attempts of a job are recorded in bins."""

RING_EVENTS = 8192
"""The events that are kept for those who follow the stream."""

T = TypeVar("T")


class News(msgspec.Struct, frozen=True):
    """The events from a position on."""

    events: list[AnyEvent]
    next: int
    """The position of the event that comes after them."""
    missed: int
    """How many events were no longer kept. Then take a `Recorder.snapshot`."""


class Recorder(Closeable):
    """The events of one job. Safe for several threads; nothing that listens can slow it down.

    Who follows the stream takes a `snapshot`, and then asks for the `news` since then, at its own
    pace. Positions are counted, so no clock decides what somebody has seen.
    """

    def __init__(
        self, progress: ProgressReport | None = None, max_attempts: int = MAX_ATTEMPTS
    ) -> None:
        """``progress`` shows the events, if there is one; it is not closed here."""
        self._shown = ShownProgress(progress)
        self.progress = self._shown.progress
        """What shows the events."""
        self._max_attempts = max_attempts
        self._changed = threading.Condition(threading.Lock())
        self._view = JobView()
        self._ring: deque[AnyEvent] = deque(maxlen=RING_EVENTS)
        self._count = 0
        self._attempts = 0
        self._bins: Bins | None = None
        self._stages = 0
        self._history: HistoryWriter | None = None
        self._is_closed = False
        self._followers: list[Closeable] = []
        self.driver = DriverStages(self)
        """What the driver itself works on."""

    def record(self, event: AnyEvent) -> None:
        """Record an event, and show it."""
        self.keep(event)
        self._shown.show(event)

    def keep(self, event: AnyEvent) -> None:
        """Record an event that is shown by other means."""
        with self._changed:
            self._take(event)
            self._changed.notify_all()

    def next_stage(self) -> int:
        """Return the number of a set of tasks that is about to begin."""
        with self._changed:
            self._stages += 1
            return self._stages - 1

    def notice(
        self,
        kind: IncidentKind,
        message: str,
        *,
        subject: str = "",
        cause: str = "",
        action: str = "",
    ) -> None:
        """Record an incident; see `Incident`."""
        self.record(
            Incident(kind=kind, message=message, subject=subject, cause=cause, action=action)
        )

    def notice_recovery(
        self, kind: IncidentKind, action: str, subject: str, error: Exception
    ) -> None:
        """Record what is done about an error of a subject."""
        self.notice(kind, f"{action}: {error}", subject=subject, cause=str(error), action=action)

    def write_to(self, path: Path) -> None:
        """Write a history to a new file: all events until now, and those to come.

        No process may be forked from this one afterwards, as it would write what is buffered, too.
        Raises OSError, and ValueError if events have been lost.
        """
        with self._changed:
            if self._count > len(self._ring):
                raise ValueError("a history must begin with the first event")
            from mrflight.events.history import HistoryWriter

            history = HistoryWriter.create(path)
            for event in self._ring:
                history.write(event)
            self._history = history

    def read(self, function: Callable[[JobView], T]) -> T:
        """Return what a function makes of the state, which it must not keep or change."""
        with self._changed:
            return function(self._view)

    def snapshot(self) -> tuple[bytes, int]:
        """Return the state as JSON, and the position of the event that comes next."""
        with self._changed:
            return encode_view(self._view), self._count

    def news(self, since: int, timeout_s: float = 0.0) -> News:
        """Return the events from the position ``since`` on; wait for one if there is none.

        Returns no events after ``timeout_s``, and at once when the recorder is closed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._count > since or self._is_closed, timeout_s)
            first = self._count - len(self._ring)
            events = list(self._ring)[max(0, since - first) :]
            return News(events, self._count, max(0, first - since))

    def closes_with(self, follower: Closeable) -> None:
        """Close something that follows the stream when this is closed, after the last event."""
        self._followers.append(follower)

    def close(self) -> None:
        """Write what is left, and end the history and whatever follows the stream."""
        with self._changed:
            self._flush_bins()
            self._is_closed = True
            if self._history is not None:
                self._history.close()
            self._changed.notify_all()
        while self._followers:
            self._followers.pop().close()

    def _take(self, event: AnyEvent) -> None:
        if isinstance(event, AttemptEnded):
            self._attempts += 1
            if self._attempts > self._max_attempts:
                self._bin(event)
                return
        elif isinstance(event, StageEnded | JobEnded):
            self._flush_bins()
        self._keep(event)

    def _bin(self, event: AttemptEnded) -> None:
        if self._bins is None:
            from mrflight.events.bins import Bins  # few jobs need it

            self._bins = Bins()
        self._bins.add(event)
        if self._bins.is_due(event.at):
            self._flush_bins()

    def _flush_bins(self) -> None:
        if self._bins is not None:
            for event in self._bins.take():
                self._keep(event)

    def _keep(self, event: AnyEvent) -> None:
        self._view.add(event)
        self._ring.append(event)
        self._count += 1
        if self._history is not None:
            self._history.write(event)
