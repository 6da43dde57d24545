"""A signal stops a stream in whatever moment it comes."""

from __future__ import annotations

from tests.support.commands.scripts import run_script

PROGRAM = """
import os, signal, sys
from mrflight.streams.stream_clock import StreamClock
from mrflight.streams.stream_signals import StreamInterrupts

def steps_of_a_wait(signal_at):
    '''Wait, with a signal at a step of the wait, and return how many steps it has.'''
    steps = 0

    def trace(frame, event, argument):
        nonlocal steps
        steps += 1
        if steps == signal_at:
            os.kill(os.getpid(), signal.SIGTERM)
        return trace

    interrupts = StreamInterrupts()
    interrupts.install()
    clock = StreamClock(interrupts.stopping)
    sys.settrace(trace)
    clock.wait(0.001)
    sys.settrace(None)
    assert clock.is_stopping is (0 < signal_at <= steps)
    interrupts.job_ends()
    return steps

number = 0
while steps_of_a_wait(number) >= number:
    number += 1
print("stopped at each step, of which there are some:", number > 5)
"""


def test_a_stream_is_stopped_at_any_step_of_its_wait() -> None:
    done = run_script(PROGRAM)
    said = "stopped at each step, of which there are some: True\n"
    assert (done.stdout, done.stderr, done.returncode) == (said, "", 0)
