"""The stream of a page as server-sent events: all that there is, and then what comes, at a pace."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from typing import Any, Protocol

import msgspec

from mrflight.page.contract import AttemptColumns, PageParts, PageState
from mrflight.page.http_server import Answer, Route

PACE_S = 0.5
"""A page is sent the state at most so often, however many events there are, and less often the
longer a job has run: every 100th of that."""
MAX_PACE_S = 2.0
SHARE = 0.0002
"""How much of a core what changes seldom may take. A driver takes 6 % of one for 300 tasks per
second, and a page may take a hundredth of that for everything."""
IDLE_S = 10.0
"""A page hears at least so often that the server is there."""
MAX_ATTEMPTS = 20_000
"""In one message: encoding them takes a millisecond."""
MEDIA_TYPE = "text/event-stream"


class Source(Protocol):
    """What a page shows. Safe for many threads."""

    def state(self) -> PageState: ...

    def parts(self) -> PageParts: ...

    def attempts(self, since: int, most: int) -> AttemptColumns:
        """Return attempts that have ended, from a position on."""

    def wait(self, position: int, timeout_s: float) -> int:
        """Wait until something has changed after a position, and return the position of now."""

    @property
    def is_over(self) -> bool:
        """Whether nothing will change any more."""


def stream_route(source: Source, closing: threading.Event, lifetime_s: float = math.inf) -> Route:
    """Return the route of the stream; see `messages`."""
    return Route(lambda: Answer(MEDIA_TYPE, parts=messages(source, closing, lifetime_s)))


def messages(
    source: Source, closing: threading.Event, lifetime_s: float = math.inf
) -> Iterator[bytes]:
    """Yield the messages of one page, until the source is over: the last one is ``end``.

    They stop without it when ``closing`` is set, or the lifetime is over. The page asks again then.
    """
    until = time.monotonic() + lifetime_s
    seen = position = 0
    parts = _Parts(source)
    while True:
        is_over = source.is_over  # before what is read below
        is_last = is_over or closing.is_set() or time.monotonic() >= until
        while (columns := source.attempts(seen, MAX_ATTEMPTS)).count:
            yield message("attempts", columns)
            seen += columns.count
        yield from parts.changed(is_last=is_last)
        state = source.state()
        yield message("state", state)
        if is_over:
            yield message("end", None)
        if is_last:
            return
        if not closing.wait(min(max(PACE_S, state.elapsed / 100), MAX_PACE_S)):
            position = source.wait(position, IDLE_S)


class _Parts:
    """The parts that one page has been sent."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._sent: dict[str, bytes] = {}
        self._due_at = 0.0

    def changed(self, *, is_last: bool) -> Iterator[bytes]:
        """Yield the parts that are not as they were sent; the more they cost, the less often."""
        if time.monotonic() < self._due_at and not is_last:
            return
        began_s = time.thread_time()
        parts = self._source.parts()
        news = {name: message(name, getattr(parts, name)) for name in parts.__struct_fields__}
        took_s = time.thread_time() - began_s
        self._due_at = time.monotonic() + took_s / SHARE
        yield from (body for name, body in news.items() if self._sent.get(name) != body)
        self._sent = news


def message(kind: str, data: Any) -> bytes:
    """Return one message; JSON has no line breaks of its own."""
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), msgspec.json.encode(data))
