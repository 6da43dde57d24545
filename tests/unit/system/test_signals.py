from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.support.commands.scripts import run_script
from tests.support.suite.waiting import hang_s

PROGRAM = """
import queue, select, signal, sys, threading, time
from mrflight.system.signals import SignalRelay

def interrupt(*_):
    raise KeyboardInterrupt

def take():
    '''As where the system gives a signal to another thread.'''
    signal.pthread_kill(threading.get_ident(), NUMBER)

def join():
    thread = threading.Thread(target=time.sleep, args=[3600], daemon=True)
    thread.start()
    thread.join()

for number in (signal.SIGINT, signal.SIGALRM):
    signal.signal(number, interrupt)
SignalRelay()
for _ in range(2):
    try:
        threading.Timer(0.3, take).start()
        WAIT
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@pytest.mark.slow_but(
    "select.poll().poll(3_600_000)-signal.SIGALRM", "queue.SimpleQueue().get()-signal.SIGALRM"
)
@pytest.mark.parametrize("number", ["signal.SIGINT", "signal.SIGALRM"])
@pytest.mark.parametrize(
    "wait",
    ["queue.SimpleQueue().get()", "select.poll().poll(3_600_000)", "join()", "time.sleep(3600)"],
)
def test_the_main_thread_wakes_for_a_signal_that_another_thread_received(
    wait: str, number: str
) -> None:
    program = PROGRAM.replace("WAIT", wait).replace("NUMBER", number)
    done = run_script(program)
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n" * 2, "", 0)


ROUNDS = 20
"""Without the relay the main thread misses some of two signals at once."""

TWO = f"""
import queue, signal, threading
from mrflight.system.signals import SignalRelay

news = queue.SimpleQueue()
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, frame: news.put(number))
SignalRelay()
for _ in range(4):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
for _ in range({ROUNDS}):
    print("ready", flush=True)
    taken = set()
    while len(taken) < 2:
        taken.add(news.get())
"""


def test_two_signals_at_once() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", TWO], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        watchdog = threading.Timer(hang_s(), process.kill)
        watchdog.start()
        for _ in process.stdout:
            time.sleep(0.01)  # until it sleeps
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGTERM)
        watchdog.cancel()
    assert process.returncode == 0
