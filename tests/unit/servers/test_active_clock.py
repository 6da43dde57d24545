"""The metadata server's clock does not count the time in which its process was suspended."""

from __future__ import annotations

import signal
import time

from tests.support.commands.scripts import running_script

PRINT_AT_EACH_LINE = """
import sys
from mrflight.servers.active_clock import ActiveClock
clock = ActiveClock()
for _ in sys.stdin:
    print(clock(), flush=True)
"""

STOPPED_S = 3.0
SLACK_S = 1.5  # the time counted at most, and the delay of a busy machine


def test_the_clock_stops_while_its_process_is_suspended() -> None:
    with running_script(PRINT_AT_EACH_LINE) as script:
        before = float(script.ask())
        script.process.send_signal(signal.SIGSTOP)
        time.sleep(STOPPED_S)  # what is measured
        script.process.send_signal(signal.SIGCONT)
        assert 0 < float(script.ask()) - before < SLACK_S
        between = float(script.ask())
        time.sleep(1.0)  # what is measured
        assert 0.9 < float(script.ask()) - between < 1.0 + SLACK_S


def test_consecutive_calls_add_up() -> None:
    from mrflight.servers.active_clock import ActiveClock

    clock = ActiveClock()
    started = time.monotonic()
    first = clock()
    while time.monotonic() - started < 0.2:
        assert clock() >= first
    assert 0.15 < clock() - first < 0.2 + SLACK_S
