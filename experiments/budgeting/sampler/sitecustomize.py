"""Samples where this process spends its processor time. Python imports this at its start.

`experiments.budgeting.profile` puts this folder on PYTHONPATH, and names a folder for the samples
in ``BUDGET_SAMPLES``. Every few milliseconds a thread reads the processor time of each thread, by
its clock, and notes what was spent since the last sample for the stack of that moment.
Threads without Python frames, such as those of gRPC, are noted by their name, with the stack of the
main thread. In a forked child the thread is started again. Every sample is written at once, because
workers and servers end by SIGKILL.

A line of the file is one of these:

- ``S number frame frame ...``: the frames of a stack, ``module:function``, the innermost first
- ``P number thread ns``: processor time of a thread with this stack
- ``N name number thread ns``: that of a thread without frames, and the stack of the main thread
- ``E number ns``: that of threads that have ended since the last sample, and the same
- ``O ns``: that of this thread itself
"""

from __future__ import annotations

import _thread
import mmap
import os
import sys
import time
from types import CodeType, FrameType

FOLDER = os.environ.get("BUDGET_SAMPLES", "")
FILE_BYTES = 64 << 20
INTERVAL_S = float(os.environ.get("BUDGET_INTERVAL_S", "0.01"))
IDLE_NS = 100_000
"""A sample is taken once the process has spent this much, so that idle processes cost little."""
NATIVE_NS = 100_000
"""Threads without frames are looked at if they have spent this much together."""


class Sampler:
    """Writes the samples of this process to a file of its own."""

    def __init__(self) -> None:
        name = f"{os.getpid()}-{time.monotonic_ns()}"
        with open(os.path.join(FOLDER, name), "wb+") as file:
            file.truncate(FILE_BYTES)  # it takes room as it is filled
            self._file = mmap.mmap(file.fileno(), FILE_BYTES)
        self._main = _thread.get_ident()
        self._stacks: dict[tuple[int, ...], int] = {}
        self._kept: list[CodeType] = []
        """The code of the known stacks, whose ids must not be used again."""
        self._names: dict[int, str] = {}
        self._clocks: dict[int, int] = {}
        self._spent_ns = self._own_ns = 0

    def run(self) -> None:
        """Take samples until the process ends."""
        self._ident = _thread.get_ident()
        while True:
            time.sleep(INTERVAL_S)
            self._sample()

    def _sample(self) -> None:
        spent, own = time.process_time_ns(), time.thread_time_ns()
        if spent - self._spent_ns - (own - self._own_ns) < IDLE_NS:
            return
        self._lines: list[str] = []
        rest = spent - self._spent_ns - (own - self._own_ns)
        frames = sys._current_frames()
        python = set[int]()
        for ident, frame in frames.items():
            clock = time.pthread_getcpuclockid(ident)
            thread = ~(clock >> 3)  # as linux/posix-timers_types.h makes it
            python.add(thread)
            if ident != self._ident and (used := self._used(thread, clock)) > 0:
                rest -= used
                self._lines.append(f"P {self._stack(frame)} {thread} {used}")
        if rest > NATIVE_NS:
            main = self._stack(frames.get(self._main))
            rest -= self._natives(python, main)
            if rest > 0:
                self._lines.append(f"E {main} {rest}")
                rest = 0
        self._lines.append(f"O {own - self._own_ns}\n")
        self._spent_ns, self._own_ns = spent - rest, own
        self._file.write("\n".join(self._lines).encode())

    def _natives(self, python: set[int], main: int) -> int:
        """Note the other threads; return what they have spent."""
        found = 0
        for thread in map(int, os.listdir("/proc/self/task")):
            if thread not in python and (used := self._used(thread, ~thread << 3 | 6)) > 0:
                found += used
                self._lines.append(f"N {self._name(thread)} {main} {thread} {used}")
        return found

    def _used(self, thread: int, clock: int) -> int:
        """Return what a thread has spent since the last sample."""
        try:
            now = time.clock_gettime_ns(clock)
        except OSError:  # it has ended
            return 0
        used = now - self._clocks.get(thread, 0)
        self._clocks[thread] = now
        return used

    def _name(self, thread: int) -> str:
        if thread not in self._names:
            try:
                with open(f"/proc/self/task/{thread}/comm", errors="replace") as file:
                    self._names[thread] = "_".join(file.read().split()) or "-"
            except OSError:  # it has ended
                return "-"
        return self._names[thread]

    def _stack(self, frame: FrameType | None) -> int:
        """Return the number of a stack, which has a line from then on."""
        frames: list[FrameType] = []
        # If the lock of Python is taken away meanwhile, a frame may end, and lead to anything.
        while isinstance(frame, FrameType):
            frames.append(frame)
            frame = frame.f_back
        codes = [each.f_code for each in frames]
        key = tuple(map(id, codes))
        if key not in self._stacks:
            self._stacks[key] = len(self._stacks)
            self._kept += codes
            self._lines.append(f"S {self._stacks[key]} {' '.join(map(_describe, frames))}")
        return self._stacks[key]


def _describe(frame: FrameType) -> str:
    module = frame.f_globals.get("__name__", "")
    if module == "__main__" and (spec := frame.f_globals.get("__spec__")) is not None:
        module = spec.name
    return f"{module}:{frame.f_code.co_name}"


def start() -> None:
    """Begin in this process."""
    _thread.start_new_thread(Sampler().run, ())  # the fork server counts those of `threading`


if FOLDER:
    os.register_at_fork(after_in_child=start)
    start()
