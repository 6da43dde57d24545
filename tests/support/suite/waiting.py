"""What a test waits for, how long, and what it raises when that was too long.

Every wait of a test is for something that happens, and its bound only ends a hang. So there is one
bound, `hang_s`, which grows with how slow the machine is at the moment. `TooSlow` says that it has
passed, which is not a wrong answer: a test with the mark ``timing`` is run once more then, alone,
after all others (`tests.support.suite.timing`).
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from tests.support.suite.slack import slack

T = TypeVar("T")

HANG_S = 120.0
"""The seconds after which something hangs, on a quiet machine. It should take one or two."""

_PAUSE_S = 0.005


class TooSlow(AssertionError):  # noqa: N818 - it is said of a test, as "skipped" is
    """Something has not happened in the time that ends a hang."""


class Awaited(Protocol):
    """A process that may end, such as `subprocess.Popen`."""

    pid: int

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...


def hang_s() -> float:
    """Return the seconds after which something hangs, on this machine at this moment."""
    return HANG_S * slack()


def await_that(
    condition: Callable[[], T | None],
    what: str,
    *,
    beside: Awaited | None = None,
    pause_s: float = _PAUSE_S,
) -> T:
    """Return what the condition gives once that is true.

    ``beside`` is a process that brings it about: its end fails the test at once. Raises `TooSlow`
    after `hang_s`.
    """
    began_s = time.monotonic()
    while True:
        looked_s = time.thread_time()
        if found := condition():
            return found
        waited_s = time.monotonic() - began_s
        if waited_s > HANG_S and waited_s > hang_s():
            raise TooSlow(f"waited {waited_s:.0f} s for {what}")
        if beside is not None and (code := beside.poll()) is not None:
            if found := condition():
                return found
            raise AssertionError(f"the process ended with code {code} before {what}")
        # Whoever looks at all processes leaves cores to what it waits for.
        time.sleep(max(pause_s, 3 * (time.thread_time() - looked_s)))


def await_end(process: Awaited, what: str) -> int:
    """Return the exit code of a process once it has ended. Raises `TooSlow` after `hang_s`."""
    try:
        return process.wait(hang_s())
    except subprocess.TimeoutExpired as expired:
        raise TooSlow(f"{what} has not ended after {expired.timeout:.0f} s") from None


def communicate(process: subprocess.Popen[Any], what: str, input: Any = None) -> tuple[Any, Any]:
    """Return what a process writes until its end. Raises `TooSlow` after `hang_s`."""
    try:
        return process.communicate(input, timeout=hang_s())
    except subprocess.TimeoutExpired as expired:
        raise TooSlow(f"{what} has not ended after {expired.timeout:.0f} s") from None
