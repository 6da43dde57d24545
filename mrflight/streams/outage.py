"""How long a stream tries again while servers or stores are away."""

from __future__ import annotations

from mrflight.errors import CatalogLockedError, MrflightError

_MAX_PAUSE_S = 30.0

MAX_LOCKED_S = 60.0
"""How long a catalog may be locked. A server comes back, but a process that was stopped in a
transaction goes on only if somebody sees that it was."""


class Outage:
    """Errors with a pause after each, until they last too long or the outage is over."""

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._began: float | None = None
        self._tries = 0

    def pause(self, error: MrflightError, now: float) -> float:
        """Return for how long to wait after an error; raise it if waiting does not help."""
        if not error.retryable:
            raise error
        if self._began is None:
            self._began, self._tries = now, 0
        longest_s = self._longest_s
        if isinstance(error, CatalogLockedError):
            longest_s = min(longest_s, MAX_LOCKED_S)
        if now - self._began > longest_s:
            raise error
        self._tries += 1
        return min(_MAX_PAUSE_S, 0.5 * 2 ** min(self._tries, 10))

    def end(self) -> None:
        """Learn that there was progress. A try may fail only after a minute without any."""
        self._began = None
