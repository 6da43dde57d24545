"""The metadata server's clock does not count the time in which its process was suspended."""

from __future__ import annotations

import signal
import time

import psutil
import pytest
from mrflight.servers import active_clock
from mrflight.servers.active_clock import ActiveClock

from tests.support.commands.scripts import running_script
from tests.support.suite.waiting import await_that

PRINT_AT_EACH_LINE = """
import sys, time
from mrflight.servers.active_clock import ActiveClock
clock = ActiveClock()
for _ in sys.stdin:
    print(time.monotonic(), clock(), time.monotonic(), flush=True)
"""

STOPPED_S = 1.5
MAX_TICK_S = 1.0
"""The most that two looks at the clock are apart, however long the process stood still."""


class Underlying:
    """A clock that goes on while the process is suspended, and only when a test says so."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return self.now_s


def test_the_clock_stops_while_its_process_is_suspended() -> None:
    with running_script(PRINT_AT_EACH_LINE) as script:
        began_s, before, _ = map(float, script.ask().split())
        process = psutil.Process(script.process.pid)
        process.suspend()
        await_that(lambda: process.status() == psutil.STATUS_STOPPED, "it to stand still")
        time.sleep(STOPPED_S)  # what is measured
        script.process.send_signal(signal.SIGCONT)
        _, after, ended_s = map(float, script.ask().split())
    assert 0 < after - before <= ended_s - began_s - (STOPPED_S - MAX_TICK_S)


def test_a_long_time_between_two_looks_counts_as_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active_clock, "_TICK_S", 3600.0)
    underlying = Underlying()
    clock = ActiveClock(underlying)
    assert clock() == 0.0
    underlying.now_s += 60.0
    assert clock() == MAX_TICK_S
    for number in range(1, 5):
        underlying.now_s += 0.5
        assert clock() == MAX_TICK_S + 0.5 * number


def test_the_clock_goes_on_while_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active_clock, "_TICK_S", 0.005)
    underlying = Underlying()
    clock = ActiveClock(underlying)
    assert clock() == 0.0
    for _ in range(4):
        underlying.now_s += 0.875
        seen = underlying.looks + 1  # a look may be under way
        await_that(lambda seen=seen: underlying.looks > seen, "a tick")  # type: ignore[misc]
    assert clock() == 4 * 0.875
