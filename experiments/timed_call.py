"""A call with its times, made in a worker."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def timed_call(function: Callable[..., Any], *arguments: Any) -> tuple[Any, float, float]:
    """What the function returns, and when it began and ended on the monotonic clock."""
    start = time.monotonic()
    return function(*arguments), start, time.monotonic()
